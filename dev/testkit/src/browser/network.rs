//! Which addresses the page has asked, and which errors the browser has reported. Both come from
//! the logs that ChromeDriver keeps.

use serde_json::Value;

use super::BrowserPage;

impl BrowserPage {
    /// The URLs that the browser has asked for since the page was opened, in order, those of
    /// `data:` and of the browser itself included.
    pub async fn requests(&self) -> Vec<String> {
        let mut requests = self.requests.lock().await;
        let entries = self.session().get_log("performance").await;
        for entry in entries.expect("the log of the network") {
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
        let entries = self.session().browser_log().await;
        for entry in entries.expect("the log of the console") {
            if ["SEVERE", "WARNING"].contains(&entry.level.as_str()) {
                errors.push(entry.message);
            }
        }
        errors.clone()
    }

    /// Asserts that the browser has reported nothing.
    pub async fn assert_no_reported_error(&self) {
        let errors = self.reported_errors().await;
        assert!(errors.is_empty(), "the browser reports {errors:#?}");
    }
}
