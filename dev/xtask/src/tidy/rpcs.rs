//! Every RPC has its own file in the server and a test.

use std::collections::BTreeSet;

use proc_macro2::TokenTree;

use super::rust::{items, walk};
use super::tree::{Tree, finding};
use super::{Finding, snake_case};

const PROTO: &str = "proto/anneal/v1";

/// Finds RPCs of the protocol without a file `server/src/grpc/rpc/<name>.rs`, and RPCs without a
/// test: neither the tests nor their harness contain a function whose name includes the RPC's name,
/// or a call of a method with this name.
pub(super) fn complete(tree: &Tree) -> Vec<Finding> {
    let traces = find_traces(tree);
    let mut findings = Vec::new();
    for (path, text) in tree.files(PROTO, "proto") {
        for (rpc, line) in declared(text) {
            let name = snake_case(&rpc);
            let file = format!("server/src/grpc/rpc/{name}.rs");
            if tree.has("server") && !tree.has(&file) {
                findings.push(finding(
                    path,
                    line,
                    "rpc",
                    format!("{rpc} has no file {file}"),
                ));
            }
            if tree.has("tests") && !traces.iter().any(|trace| trace.covers(&name)) {
                findings.push(finding(
                    path,
                    line,
                    "rpc",
                    format!("{rpc} has no test that names {name}"),
                ));
            }
        }
    }
    findings
}

/// A name in the tests by which a test of an RPC is recognized: of a called method, or of a
/// function.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Trace {
    Method(String),
    Function(String),
}

impl Trace {
    fn covers(&self, rpc: &str) -> bool {
        match self {
            Self::Method(name) => name == rpc,
            // With underscores around both names, the RPC's name matches only whole words.
            Self::Function(name) => format!("_{name}_").contains(&format!("_{rpc}_")),
        }
    }
}

fn find_traces(tree: &Tree) -> BTreeSet<Trace> {
    let mut traces = BTreeSet::new();
    let files = ["tests", "dev/testkit"]
        .into_iter()
        .flat_map(|folder| tree.files(folder, "rs"));
    for (_, text) in files {
        traces.extend(
            items(text, "fn")
                .into_iter()
                .map(|function| Trace::Function(function.name)),
        );
        walk(text, &mut |tokens| {
            for pair in tokens.windows(2) {
                if let [TokenTree::Punct(dot), TokenTree::Ident(method)] = pair
                    && dot.as_char() == '.'
                {
                    traces.insert(Trace::Method(method.to_string()));
                }
            }
        });
    }
    traces
}

/// Names and line numbers of the RPCs in a proto file.
fn declared(text: &str) -> impl Iterator<Item = (String, usize)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let rest = line.trim_start().strip_prefix("rpc ")?;
        let name = rest.split('(').next().unwrap_or(rest).trim();
        Some((name.to_owned(), index + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO_FILE: (&str, &str) = (
        "proto/anneal/v1/context.proto",
        "service S {\n  // rpc Old(A) returns (B);\n  rpc BuildContext(A) returns (B);\n  rpc Compact (A) returns (B) {}\n}\n",
    );

    #[test]
    fn an_rpc_without_file_or_test_is_found() {
        let tree = Tree::of(&[
            PROTO_FILE,
            ("server/src/grpc/rpc/compact.rs", ""),
            (
                "tests/tests/jobs/compact.rs",
                "fn compact_moves_the_boundary() {}",
            ),
        ]);
        let printed: Vec<_> = complete(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            printed,
            [
                "proto/anneal/v1/context.proto:3: rpc: BuildContext has no file server/src/grpc/rpc/build_context.rs",
                "proto/anneal/v1/context.proto:3: rpc: BuildContext has no test that names build_context",
            ]
        );
    }

    #[test]
    fn a_method_call_or_a_function_name_counts_as_test() {
        let server = [
            ("server/src/grpc/rpc/compact.rs", ""),
            ("server/src/grpc/rpc/build_context.rs", ""),
        ];
        let compact = (
            "tests/tests/jobs/compact.rs",
            "fn compact_moves_the_boundary() {}",
        );
        let with = |text| {
            let files = [
                PROTO_FILE,
                server[0],
                server[1],
                compact,
                ("tests/tests/contexts/a.rs", text),
            ];
            complete(&Tree::of(&files)).len()
        };
        assert_eq!(with("fn f() { client.build_context(ask); }"), 0);
        assert_eq!(with("fn build_context_fits() {}"), 0);
        assert_eq!(with("fn rebuild_contexts() { build_context(); }"), 1);
    }

    #[test]
    fn without_server_and_tests_nothing_is_checked() {
        assert_eq!(complete(&Tree::of(&[PROTO_FILE])), []);
    }
}
