//! Acts on a page as a person does, and reads it. Every function that acts on an element waits
//! until the element is there.

use fantoccini::{
    Client, Locator,
    actions::{InputSource as _, KeyAction, KeyActions},
    elements::Element,
    error::{CmdError, ErrorStatus},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{Look, command::Command, key};
use crate::eventually;

/// A page in a Chromium of its own.
pub struct BrowserPage {
    session: Client,
    origin: String,
    /// The URLs asked for so far.
    pub(super) requests: Mutex<Vec<String>>,
    /// The errors reported so far.
    pub(super) errors: Mutex<Vec<String>>,
}

impl BrowserPage {
    /// The session's window, which looks like this and shows nothing yet.
    pub(super) async fn new(session: Client, origin: &str, look: Look) -> Self {
        let page = Self {
            session,
            origin: origin.to_owned(),
            requests: Mutex::default(),
            errors: Mutex::default(),
        };
        page.change_look(look).await;
        // Chromium has opened a page of its own, whose requests are not those of the test.
        page.session()
            .goto("about:blank")
            .await
            .expect("it is empty");
        page.requests().await;
        page.requests.lock().await.clear();
        page
    }

    /// The window's session, for what has no function here.
    pub fn session(&self) -> &Client {
        &self.session
    }

    /// The server's origin, without a slash at the end.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Changes the window's size, its colours, and whether scripts run. Scripts are switched on or
    /// off from the next page on.
    pub async fn change_look(&self, look: Look) {
        let size = json!({
            "width": look.width,
            "height": look.height,
            "deviceScaleFactor": 1,
            "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
        let colours = if look.dark { "dark" } else { "light" };
        let media = json!({
            "features": [
                { "name": "prefers-color-scheme", "value": colours },
                { "name": "prefers-reduced-motion", "value": "reduce" },
            ],
        });
        self.devtools("Emulation.setEmulatedMedia", media).await;
        let scripts = json!({ "value": !look.scripts });
        self.devtools("Emulation.setScriptExecutionDisabled", scripts)
            .await;
    }

    /// Calls a method of Chromium's DevTools protocol.
    pub async fn devtools(&self, method: &str, parameters: Value) -> Value {
        let command = Command::devtools(method, &parameters);
        let answer = self.session().issue_cmd(command).await;
        answer.unwrap_or_else(|error| panic!("{method} fails: {error}"))
    }

    /// Opens a path of the server, and waits until it is loaded.
    pub async fn visit(&self, path: &str) {
        let url = format!("{}{path}", self.origin);
        self.session().goto(&url).await.expect("the page is loaded");
    }

    /// Loads the page again.
    pub async fn reload(&self) {
        self.session().refresh().await.expect("the page is loaded");
    }

    /// Path and query of the page.
    pub async fn path(&self) -> String {
        let url = self.session().current_url().await.expect("a URL");
        match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        }
    }

    /// The page's title.
    pub async fn title(&self) -> String {
        self.session().title().await.expect("a title")
    }

    /// The page's HTML as it is now.
    pub async fn source(&self) -> String {
        self.session().source().await.expect("HTML")
    }

    /// Opens the sign-in page, signs in with this key or token, and returns to the page that was
    /// open.
    pub async fn sign_in(&self, credential: &str) {
        let path = self.path().await;
        if !path.starts_with("/sign-in") {
            self.visit("/sign-in").await;
        }
        self.write("[name=credential]", credential).await;
        self.press("[name=credential]", key::ENTER).await;
        eventually("the credential is accepted", async || {
            !self.path().await.starts_with("/sign-in")
        })
        .await;
        if !path.starts_with("/sign-in") {
            self.visit(&path).await;
        }
    }

    /// The first element of this selector, once there is one.
    pub async fn find(&self, css: &str) -> Element {
        self.wait_for(css).await;
        let element = self.session().find(Locator::Css(css)).await;
        element.unwrap_or_else(|error| panic!("{css} has gone: {error}"))
    }

    /// How many elements the selector has now.
    pub async fn count(&self, css: &str) -> usize {
        let elements = self.session().find_all(Locator::Css(css)).await;
        elements.expect("the selector is valid").len()
    }

    /// Waits until the selector has an element.
    pub async fn wait_for(&self, css: &str) {
        eventually(&format!("{css} is there"), async || {
            self.count(css).await > 0
        })
        .await;
    }

    /// Waits until the selector has no element.
    pub async fn wait_until_gone(&self, css: &str) {
        eventually(&format!("{css} is gone"), async || {
            self.count(css).await == 0
        })
        .await;
    }

    /// Waits until the text of the selector's first element contains this.
    pub async fn wait_for_text(&self, css: &str, wanted: &str) {
        eventually(&format!("{css} says {wanted:?}"), async || {
            let Ok(element) = self.session().find(Locator::Css(css)).await else {
                return false;
            };
            // An element may be replaced while it is read.
            let text = element.text().await.unwrap_or_default();
            text.contains(wanted)
        })
        .await;
    }

    /// Waits until this expression of JavaScript is true. `what` names it in the panic's message.
    pub async fn wait_until(&self, what: &str, expression: &str) {
        let script = format!("return Boolean({expression})");
        eventually(what, async || self.run(&script).await == true).await;
    }

    /// The visible text of the selector's first element.
    pub async fn text(&self, css: &str) -> String {
        let text = self.find(css).await.text().await;
        text.expect("an element has text")
    }

    /// The visible texts of all elements of the selector, in order.
    pub async fn texts(&self, css: &str) -> Vec<String> {
        let mut texts = Vec::new();
        let elements = self.session().find_all(Locator::Css(css)).await;
        for element in elements.expect("the selector is valid") {
            texts.push(element.text().await.expect("an element has text"));
        }
        texts
    }

    /// An attribute of the selector's first element. None: it has no such attribute.
    pub async fn attribute(&self, css: &str, name: &str) -> Option<String> {
        let element = self.find(css).await;
        element.attr(name).await.expect("an element has attributes")
    }

    /// Scrolls to the selector's first element and clicks it.
    pub async fn click(&self, css: &str) {
        self.act(css, async |element| {
            self.scroll_to(element).await?;
            element.click().await
        })
        .await;
    }

    /// Scrolls until the element is in the middle, where no bar covers it.
    async fn scroll_to(&self, element: &Element) -> Result<(), CmdError> {
        let script = "arguments[0].scrollIntoView({block: 'center'})";
        let argument = serde_json::to_value(element).expect("an element has an id");
        self.session().execute(script, vec![argument]).await?;
        Ok(())
    }

    /// Replaces what stands in a field, as a person types.
    pub async fn write(&self, css: &str, text: &str) {
        self.act(css, async |element| {
            element.clear().await?;
            element.send_keys(text).await
        })
        .await;
    }

    /// Does something with the selector's first element. If the page replaces or moves the element
    /// meanwhile, does it with the element as it is then.
    async fn act(&self, css: &str, action: impl AsyncFn(&Element) -> Result<(), CmdError>) {
        eventually(&format!("{css} can be used"), async || {
            let element = self.find(css).await;
            match action(&element).await {
                Ok(()) => true,
                Err(error) if error.is_stale_element_reference() => false,
                Err(CmdError::Standard(error))
                    if error.error == ErrorStatus::ElementClickIntercepted =>
                {
                    false
                }
                Err(error) => panic!("{css} cannot be used: {error}"),
            }
        })
        .await;
    }

    /// Presses keys in the selector's first element: characters, and those of `key`. Control is
    /// held until the end.
    pub async fn press(&self, css: &str, keys: &str) {
        self.act(css, async |element| element.send_keys(keys).await)
            .await;
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub async fn press_key(&self, keys: &str) {
        let actions = keys
            .chars()
            .flat_map(|value| [KeyAction::Down { value }, KeyAction::Up { value }])
            .fold(KeyActions::new("keyboard".to_owned()), KeyActions::then);
        let pressed = self.session().perform_actions(actions).await;
        pressed.expect("the keys are pressed");
    }

    /// Runs a script in the page, also if the page's own scripts are off. Returns what it returns.
    pub async fn run(&self, script: &str) -> Value {
        let ran = self.session().execute(script, Vec::new()).await;
        ran.unwrap_or_else(|error| panic!("{script} fails: {error}"))
    }

    /// The window as a PNG file.
    pub async fn screenshot(&self) -> Vec<u8> {
        let picture = self.session().screenshot().await;
        picture.expect("a screenshot")
    }
}
