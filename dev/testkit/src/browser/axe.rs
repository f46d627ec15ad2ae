//! axe-core looks for violations of the accessibility guidelines (WCAG 2.0 to 2.2, levels A and
//! AA). It runs in an isolated world of the page, so that the page's Content-Security-Policy stays
//! as it is.

use serde_json::{Value, json};

use super::BrowserPage;

/// axe-core 4.14.1, unchanged.
const AXE: &str = include_str!("../../../../tests/vendor/axe-core/axe.min.js");

/// Returns the violations as JSON text: rule, impact, and the elements with the reason.
const RUN: &str = "
axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'],
    resultTypes: ['violations'],
}).then(results => JSON.stringify(results.violations.map(violation => ({
    rule: violation.id,
    impact: violation.impact,
    elements: violation.nodes.map(node => node.html.slice(0, 200) + ' ' + node.failureSummary),
}))))";

impl BrowserPage {
    /// Asserts that axe-core finds no violation of level A or AA in the page as it is now.
    pub async fn assert_accessible(&self) {
        let violations = self.find_violations().await;
        let path = self.path().await;
        assert!(
            violations.as_array().is_some_and(Vec::is_empty),
            "{path} is not accessible: {violations:#}"
        );
    }

    /// The violations that axe-core finds in the page as it is now.
    pub async fn find_violations(&self) -> Value {
        let frames = self.devtools("Page.getFrameTree", json!({})).await;
        let world = json!({
            "frameId": frames["frameTree"]["frame"]["id"],
            "worldName": "axe",
        });
        let world = self.devtools("Page.createIsolatedWorld", world).await;
        let context = &world["executionContextId"];
        self.evaluate_in(context, AXE).await;
        let found = self.evaluate_in(context, RUN).await;
        let found = found["result"]["value"].as_str();
        serde_json::from_str(found.expect("axe answers with text")).expect("JSON")
    }

    async fn evaluate_in(&self, context: &Value, expression: &str) -> Value {
        let ask = json!({
            "expression": expression,
            "contextId": context,
            "awaitPromise": true,
            "returnByValue": true,
        });
        let answer = self.devtools("Runtime.evaluate", ask).await;
        assert!(
            answer["exceptionDetails"].is_null(),
            "axe failed: {answer:#}"
        );
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axe_core_is_unchanged() {
        let sums = include_str!("../../../../tests/vendor/axe-core/SHA256SUMS");
        let digest = hex::encode(anneal_core::digest::of_content(AXE));
        assert!(sums.contains(&format!("{digest}  axe.min.js")), "{digest}");
    }
}
