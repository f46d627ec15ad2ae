//! The version and the commit of this build. `process/build.rs` finds out the commit.

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built: a hash of git, the name that the variable `ANNEAL_COMMIT` or
/// `GIT_COMMIT` had during the build, or `unknown`.
pub const COMMIT: &str = env!("ANNEAL_BUILD_COMMIT");

/// The date of the commit, as in `2026-11-30`, in the time zone of its committer; or `unknown`.
pub const COMMIT_DATE: &str = env!("ANNEAL_BUILD_COMMIT_DATE");
