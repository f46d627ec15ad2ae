//! Gives the crate the commit that it is built from. `ANNEAL_COMMIT` or `GIT_COMMIT` names it if
//! one of them is set, otherwise git does, in a checkout of this repository. In a build from an
//! archive the commit is unknown, and so it is without optimization: otherwise every commit would
//! have all crates above this one compiled again. Nothing depends on the time of the build, so
//! builds stay reproducible.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The variables that name the commit of a build without git.
const COMMIT_VARIABLES: [&str; 2] = ["ANNEAL_COMMIT", "GIT_COMMIT"];

/// Stands for a commit or a date that the build does not know.
const UNKNOWN: &str = "unknown";

/// Most characters of the commit. A hash of SHA-256 has as many.
const MAX_CHARACTERS: usize = 64;

fn main() {
    for variable in COMMIT_VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let is_development = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let repository = (!is_development).then(find_repository).flatten();
    if let Some(repository) = &repository {
        watch_head(repository);
    }
    let named = COMMIT_VARIABLES
        .iter()
        .find_map(|variable| std::env::var(variable).ok().and_then(|name| clean(&name)));
    let commit = named.or_else(|| run_git(repository.as_deref()?, &["rev-parse", "HEAD"]));
    // The date is stored in the commit, so it is the same in every build.
    let date = commit
        .as_deref()
        .zip(repository.as_deref())
        .and_then(|(commit, folder)| {
            run_git(folder, &["show", "-s", "--format=%cs", commit, "--"])
        });
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.to_owned());
    println!(
        "cargo::rustc-env=ANNEAL_BUILD_COMMIT={}",
        or_unknown(commit)
    );
    println!(
        "cargo::rustc-env=ANNEAL_BUILD_COMMIT_DATE={}",
        or_unknown(date)
    );
}

/// The folder of this workspace, if it is the root of a git checkout. An archive that is unpacked
/// in another project's checkout is none.
fn find_repository() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()?
        .canonicalize()
        .ok()?;
    let root = run_git(&workspace, &["rev-parse", "--show-toplevel"])?;
    let root = Path::new(&root).canonicalize().ok()?;
    (root == workspace).then_some(root)
}

/// Has the script run again after a commit or a checkout. Git writes both of these files then.
fn watch_head(repository: &Path) {
    for file in ["HEAD", "logs/HEAD"] {
        let path = run_git(
            repository,
            &["rev-parse", "--path-format=absolute", "--git-path", file],
        );
        // A file that does not exist would make every build run the script.
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The first line that git prints. None: git is missing, fails, or prints nothing.
fn run_git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(folder)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next().unwrap_or_default().trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

/// The commit as a name of letters, digits, `.`, `_` and `-`. None: the name is empty, too long or
/// has other characters.
fn clean(name: &str) -> Option<String> {
    let name = name.trim();
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_valid = !name.is_empty() && name.len() <= MAX_CHARACTERS && name.chars().all(is_allowed);
    is_valid.then(|| name.to_owned())
}
