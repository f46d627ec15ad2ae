//! Commands of ChromeDriver that the WebDriver protocol does not have.

use fantoccini::wd::WebDriverCompatibleCommand;
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// A command of ChromeDriver.
#[derive(Debug)]
pub(super) struct Command {
    /// The path after the session's.
    path: &'static str,
    body: Value,
}

impl Command {
    /// Calls a method of the DevTools protocol.
    pub(super) fn devtools(method: &str, parameters: &Value) -> Self {
        Self {
            path: "goog/cdp/execute",
            body: json!({ "cmd": method, "params": parameters }),
        }
    }

    /// Takes the newest entries of a log: `performance` or `browser`.
    pub(super) fn read_log(name: &str) -> Self {
        Self {
            path: "se/log",
            body: json!({ "type": name }),
        }
    }
}

impl WebDriverCompatibleCommand for Command {
    fn endpoint(&self, base_url: &Url, session_id: Option<&str>) -> Result<Url, ParseError> {
        let session = session_id.unwrap_or_default();
        base_url.join(&format!("session/{session}/{}", self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
