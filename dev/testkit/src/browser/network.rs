//! Which addresses the page has asked, and which errors the browser has reported. Both come from
//! the logs that ChromeDriver keeps.

use serde::Deserialize;
use serde_json::Value;

use super::{BrowserPage, command::Command};

#[derive(Deserialize)]
struct LogEntry {
    level: String,
    message: String,
}

impl BrowserPage {
    /// The URLs that the browser has asked for since the page was opened, in order, those of
    /// `data:` and of the browser itself included.
    pub async fn requests(&self) -> Vec<String> {
        let mut requests = self.requests.lock().await;
        for entry in self.read_log("performance").await {
            let entry: Value = serde_json::from_str(&entry.message).expect("JSON");
            let event = &entry["message"];
            if event["method"] == "Network.requestWillBeSent" {
                let url = event["params"]["request"]["url"].as_str();
                requests.push(url.expect("a request has a URL").to_owned());
            }
        }
        requests.clone()
    }

    /// Asserts that the page has asked its own server only.
    pub async fn assert_no_foreign_request(&self) {
        let own = format!("{}/", self.origin());
        for url in self.requests().await {
            let is_of_browser = ["about:", "chrome:", "data:", "blob:"]
                .iter()
                .any(|scheme| url.starts_with(scheme));
            assert!(url.starts_with(&own) || is_of_browser, "it asked {url}");
        }
    }

    /// The errors and warnings that the browser has reported since the page was opened: exceptions,
    /// violations of the Content-Security-Policy, answers with a status of an error.
    pub async fn reported_errors(&self) -> Vec<String> {
        let mut errors = self.errors.lock().await;
        for entry in self.read_log("browser").await {
            if ["SEVERE", "WARNING"].contains(&entry.level.as_str()) {
                errors.push(entry.message);
            }
        }
        errors.clone()
    }

    /// The entries of a log since it was last read.
    async fn read_log(&self, name: &str) -> Vec<LogEntry> {
        let entries = self.session().issue_cmd(Command::read_log(name)).await;
        let entries = entries.expect("ChromeDriver keeps the log");
        serde_json::from_value(entries).expect("entries")
    }

    /// Asserts that the browser has reported nothing.
    pub async fn assert_no_reported_error(&self) {
        let errors = self.reported_errors().await;
        assert!(errors.is_empty(), "the browser reports {errors:#?}");
    }
}
