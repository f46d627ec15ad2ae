#[derive(Debug)]
pub struct RenderError;
impl std::fmt::Display for RenderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("x")
    }
}
pub mod layout {
    pub struct Page {
        pub title: String,
        pub csrf: String,
        pub who: String,
        pub bound: String,
        pub tenant: String,
        pub can: Can,
        pub place: Place,
        pub notice: Option<Notice>,
        pub refresh_seconds: Option<u32>,
    }
    pub struct Can {
        pub append: bool,
        pub admin: bool,
        pub operator: bool,
    }
    pub enum Place {
        Conversations,
        Xray,
        Operations,
        SignIn,
    }
    pub struct Notice {
        pub kind: NoticeKind,
        pub text: String,
        pub reason: String,
    }
    pub enum NoticeKind {
        Done,
        Refused,
    }
    impl Page {
        pub fn stub(&self) -> String {
            format!(
                "<input name=\"csrf\" value=\"{}\">{}|{}",
                self.csrf, self.title, self.who
            )
        }
    }
}
pub mod sign_in {
    pub struct SignInPage {
        pub page: super::layout::Page,
        pub next: String,
        pub accepts_keys: bool,
        pub accepts_tokens: bool,
    }
    impl SignInPage {
        pub fn render(&self) -> Result<String, super::RenderError> {
            Ok(self.page.stub())
        }
    }
}
pub mod error {
    pub struct ErrorPage {
        pub page: super::layout::Page,
        pub refusal: Refusal,
    }
    pub struct Refusal {
        pub title: String,
        pub text: String,
        pub reason: String,
        pub status: u16,
    }
    impl ErrorPage {
        pub fn render(&self) -> Result<String, super::RenderError> {
            Ok(self.page.stub())
        }
    }
    impl Refusal {
        pub fn render(&self) -> Result<String, super::RenderError> {
            Ok(self.text.clone())
        }
    }
}
pub mod assets {
    pub struct Asset {
        pub name: &'static str,
        pub path: &'static str,
        pub content_type: &'static str,
        pub gzip: &'static [u8],
        pub plain: &'static [u8],
    }
    pub fn find(_path: &str) -> Option<&'static Asset> {
        None
    }
}
