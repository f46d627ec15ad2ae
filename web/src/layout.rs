//! What all pages share: the frame, the signed-in person and notices.

/// The part of the page that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Lists and conversations.
    Conversations,
    /// The X-ray of a conversation, and its what-if.
    Xray,
    /// The operator's page.
    Operations,
    /// The form to sign in.
    SignIn,
}

/// Whether a request has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// It has.
    Done,
    /// It has not.
    Refused,
}

/// What the credential allows. It hides controls; the server decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Can {
    /// Write and send.
    pub append: bool,
    /// Delete, and treat jobs.
    pub admin: bool,
    /// See the operator's page.
    pub operator: bool,
}

/// The outcome of the last request.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Whether it has succeeded.
    pub kind: NoticeKind,
    /// A sentence for people.
    pub text: String,
    /// The reason of a refusal, as docs/errors.md names it; empty: none.
    pub reason: String,
}

/// The frame of a page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Title, without the name of the program.
    pub title: String,
    /// Token that every form sends.
    pub csrf: String,
    /// The name of the credential; empty: nobody has signed in.
    pub who: String,
    /// The user, agent or conversation that the credential is bound to; empty: none.
    pub bound: String,
    /// The tenant; empty: the server has one only.
    pub tenant: String,
    /// What the credential allows.
    pub can: Can,
    /// The part that is shown.
    pub place: Place,
    /// The outcome of the last request.
    pub notice: Option<Notice>,
    /// How a browser without JavaScript loads the page again. None: it does not.
    pub refresh: Option<Refresh>,
}

/// When and where a page is loaded again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    /// Seconds after which it is loaded.
    pub seconds: u32,
    /// Its path, without a fragment: browsers do not load an address again that has one.
    pub path: String,
}
