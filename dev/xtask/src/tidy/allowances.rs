//! Waives rules in the source, by `// tidy: allow(rule): reason` on the line of the finding or in
//! the comment above it. For the rule about a file's length, it may be anywhere in the file.

use super::Finding;
use super::tree::{Tree, finding};

/// The beginning of an allowance.
const MARK: &str = "// tidy: allow(";

/// Rules that can be waived in the source. The others have only the exceptions that their own files
/// list.
const WAIVABLE: [&str; 3] = [LONG_FILE, "long-function", "sleep"];
const LONG_FILE: &str = "long-file";

struct Allowance {
    path: String,
    line: usize,
    rule: String,
    /// Whether the comment states a reason.
    has_reason: bool,
    /// The first line, from the allowance on, that is neither a comment nor an attribute.
    code_line: usize,
}

/// Returns the findings that are not waived, plus findings about allowances that are invalid or not
/// needed.
pub(super) fn apply(tree: &Tree, findings: Vec<Finding>) -> Vec<Finding> {
    let allowances: Vec<Allowance> = tree
        .files("", "rs")
        .flat_map(|(path, text)| parse(path, text))
        .collect();
    let about_allowances = allowances
        .iter()
        .filter_map(|allowance| judge(allowance, &findings));
    let about_allowances: Vec<Finding> = about_allowances.collect();
    let mut remaining: Vec<Finding> = findings
        .into_iter()
        .filter(|found| !allowances.iter().any(|allowance| covers(allowance, found)))
        .collect();
    remaining.extend(about_allowances);
    remaining
}

/// Whether the allowance waives this finding.
fn covers(allowance: &Allowance, found: &Finding) -> bool {
    let is_in_reach = allowance.rule == LONG_FILE
        || found.line == allowance.line
        || found.line == allowance.code_line;
    allowance.has_reason
        && allowance.path == found.path
        && allowance.rule == found.rule
        && WAIVABLE.contains(&found.rule)
        && is_in_reach
}

/// The finding about an allowance itself: its rule cannot be waived, it has no reason, or it waives
/// nothing.
fn judge(allowance: &Allowance, findings: &[Finding]) -> Option<Finding> {
    let sentence = if !WAIVABLE.contains(&allowance.rule.as_str()) {
        format!(
            "the rule `{}` cannot be waived by a comment",
            allowance.rule
        )
    } else if !allowance.has_reason {
        "an allowance needs a reason: `// tidy: allow(rule): reason`".to_owned()
    } else if !findings.iter().any(|found| covers(allowance, found)) {
        format!(
            "nothing here breaks the rule `{}` any more; remove the comment",
            allowance.rule
        )
    } else {
        return None;
    };
    Some(finding(
        &allowance.path,
        allowance.line,
        "allowance",
        sentence,
    ))
}

/// Parses the allowances of a file. They stand at the start of a comment, on a line of its own or
/// after code.
fn parse(path: &str, text: &str) -> Vec<Allowance> {
    let lines: Vec<&str> = text.lines().collect();
    let mut allowances = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((before, rest)) = line.split_once(MARK) else {
            continue;
        };
        let Some((rule, reason)) = rest.split_once(')') else {
            continue;
        };
        // Within another comment or a string the mark is only quoted.
        if before.contains("//") || before.contains(['"', '`']) {
            continue;
        }
        let lines_before_code = lines[index..]
            .iter()
            .take_while(|line| is_between(line))
            .count();
        allowances.push(Allowance {
            path: path.to_owned(),
            line: index + 1,
            rule: rule.to_owned(),
            has_reason: reason
                .strip_prefix(':')
                .is_some_and(|reason| !reason.trim().is_empty()),
            code_line: index + 1 + lines_before_code,
        });
    }
    allowances
}

/// Whether the line is a comment or an attribute, which may stand between an allowance and the code
/// that it applies to.
fn is_between(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("#[")
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    const SLEEP: &str = "thread::sleep(x);";

    fn rules(source: &str) -> Vec<&'static str> {
        check(&Tree::of(&[("tests/a.rs", source)]))
            .iter()
            .map(|found| found.rule)
            .collect()
    }

    #[test]
    fn an_allowance_with_a_reason_covers_its_line_and_the_one_below_its_comment() {
        assert_eq!(
            rules(&format!(
                "fn f() {{\n// tidy: allow(sleep): the clock is under test\n// as such\n{SLEEP} }}"
            )),
            [""; 0]
        );
        assert_eq!(
            rules(&format!(
                "fn f() {{ {SLEEP} // tidy: allow(sleep): the clock is under test\n}}"
            )),
            [""; 0]
        );
        assert_eq!(
            rules(&format!(
                "// tidy: allow(sleep): too far\nfn f() {{\n{SLEEP} }}"
            )),
            ["allowance", "sleep"]
        );
    }

    #[test]
    fn the_length_of_a_file_may_be_waived_anywhere_in_it() {
        let long = format!("{}// tidy: allow(long-file): a table\n", "//\n".repeat(700));
        assert_eq!(rules(&long), [""; 0]);
    }

    #[test]
    fn an_allowance_without_reason_or_use_or_for_other_rules_is_a_finding() {
        assert_eq!(
            rules(&format!("fn f() {{\n// tidy: allow(sleep)\n{SLEEP} }}")),
            ["allowance", "sleep"]
        );
        assert_eq!(rules("// tidy: allow(sleep): nothing\n"), ["allowance"]);
        assert_eq!(rules("// tidy: allow(name): please\n"), ["allowance"]);
    }
}
