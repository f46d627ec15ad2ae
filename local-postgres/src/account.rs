//! Who runs PostgreSQL: ourselves, or another user when we are root.
//!
//! The switch is the standard library's: `CommandExt::uid` and `gid` call setgroups, setgid and setuid between fork and
//! exec, and as root `uid` empties the supplementary groups. So no setpriv, runuser or su is needed, whose presence,
//! options and PAM sessions differ between systems.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{LocalPostgresError, OnPath, Result};

/// The user that runs PostgreSQL.
pub(crate) struct Account {
    uid: u32,
    /// Whom to become. None: we run it as ourselves.
    other: Option<Other>,
}

struct Other {
    name: String,
    gid: u32,
}

impl Account {
    /// Ourselves; for root `postgres`, else `nobody`.
    pub(crate) fn current() -> Result<Account> {
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            return Ok(Account { uid: uid.as_raw(), other: None });
        }
        let path = Path::new("/etc/passwd");
        let passwd = fs::read_to_string(path).on("read", path)?;
        find_user(&passwd, "postgres").or_else(|| find_user(&passwd, "nobody")).ok_or(LocalPostgresError::NoAccount)
    }

    /// The program, ready to run as this user in `folder`: own process group, so that no Ctrl-C of a terminal reaches it,
    /// and none of the caller's locale or PG* variables, which would change what it does.
    pub(crate) fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).process_group(0).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let locale = ["LANG", "LANGUAGE"].iter().any(|known| name == *known);
            if locale || name.as_encoded_bytes().starts_with(b"PG") || name.as_encoded_bytes().starts_with(b"LC_") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C");
        if let Some(other) = &self.other {
            command.uid(self.uid).gid(other.gid).env("HOME", folder).env("USER", &other.name);
        }
        command
    }

    /// Gives the file or folder to this user. Nothing to do when we are that user.
    pub(crate) fn give(&self, path: &Path) -> Result<()> {
        match &self.other {
            Some(other) => chown(path, Some(self.uid), Some(other.gid)).on("give away", path),
            None => Ok(()),
        }
    }

    /// Whether a file belongs to this user.
    pub(crate) fn owns(&self, file: &Metadata) -> bool {
        file.uid() == self.uid
    }

    /// Whether this user may walk to `path`, itself included if `path` is a folder. Only asked of users that we become.
    pub(crate) fn reaches(&self, path: &Path) -> bool {
        let Some(other) = &self.other else { return true };
        path.ancestors().all(|step| {
            fs::metadata(step).is_ok_and(|step| {
                let search = if step.uid() == self.uid {
                    0o100
                } else if step.gid() == other.gid {
                    0o010
                } else {
                    0o001
                };
                step.mode() & search != 0
            })
        })
    }

    /// Refuses a program that this user may not run.
    pub(crate) fn check_reaches(&self, path: &Path) -> Result<()> {
        if self.reaches(path) {
            return Ok(());
        }
        let account = self.other.as_ref().map_or_else(String::new, |other| other.name.clone());
        Err(LocalPostgresError::Unreachable { account, path: path.to_owned() })
    }
}

/// The user of that name in the text of /etc/passwd: `name:x:uid:gid:…`.
fn find_user(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        found.then(|| Account { uid, other: Some(Other { name: name.to_owned(), gid }) })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\nnobody:x:65534:65533::/:/bin/false\n";

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let nobody = find_user(PASSWD, "nobody").unwrap();
        assert_eq!((nobody.uid, nobody.other.unwrap().gid), (65534, 65533));
        assert!(find_user(PASSWD, "body").is_none());
    }

    #[test]
    fn another_user_does_not_reach_a_private_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = Account { uid: 4_000_000, other: Some(Other { name: "stranger".into(), gid: 4_000_000 }) };
        assert!(!stranger.reaches(folder.path()));
        assert!(stranger.reaches(Path::new("/")));
    }
}
