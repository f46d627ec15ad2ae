//! The user that runs PostgreSQL: the current user, or another one if the current user is root.
//!
//! The switch uses the standard library: `CommandExt::uid` and `gid` call setgroups, setgid and
//! setuid between fork and exec, and as root `uid` empties the supplementary groups. setpriv,
//! runuser and su are not used, because their presence, options and PAM sessions differ between
//! systems.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{LocalPostgresError, OnPath, Result};

/// The user that runs PostgreSQL.
pub(crate) struct Account {
    uid: u32,
    /// The user to switch to. None: PostgreSQL runs as the current user.
    other: Option<OtherUser>,
}

struct OtherUser {
    name: String,
    gid: u32,
}

impl Account {
    /// The current user. If it is root: the user `postgres`, or `nobody` if there is no `postgres`.
    pub(crate) fn current() -> Result<Account> {
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            return Ok(Account {
                uid: uid.as_raw(),
                other: None,
            });
        }
        let path = Path::new("/etc/passwd");
        let passwd = fs::read_to_string(path).on("read", path)?;
        find_user(&passwd, "postgres")
            .or_else(|| find_user(&passwd, "nobody"))
            .ok_or(LocalPostgresError::NoAccount)
    }

    /// A command for this program, which runs as this user in `folder`. It gets its own process
    /// group, so that a Ctrl-C in the terminal does not reach it. The locale and PG* variables of
    /// the caller are removed, because they would change what the program does.
    pub(crate) fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let bytes = name.as_encoded_bytes();
            let is_locale = name == "LANG" || name == "LANGUAGE" || bytes.starts_with(b"LC_");
            if is_locale || bytes.starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C");
        if let Some(other) = &self.other {
            command
                .uid(self.uid)
                .gid(other.gid)
                .env("HOME", folder)
                .env("USER", &other.name);
        }
        command
    }

    /// Changes the owner of the file or folder to this user. Does nothing if PostgreSQL runs as the
    /// current user.
    pub(crate) fn chown(&self, path: &Path) -> Result<()> {
        match &self.other {
            Some(other) => {
                chown(path, Some(self.uid), Some(other.gid)).on("change the owner of", path)
            }
            None => Ok(()),
        }
    }

    /// Whether a file belongs to this user.
    pub(crate) fn owns(&self, file: &Metadata) -> bool {
        file.uid() == self.uid
    }

    /// Whether this user may enter the folder `path` and all folders on the way to it. False if it
    /// does not exist. Always true if PostgreSQL runs as the current user.
    pub(crate) fn can_enter(&self, path: &Path) -> bool {
        let Some(other) = &self.other else {
            return true;
        };
        path.ancestors().all(|ancestor| {
            fs::metadata(ancestor).is_ok_and(|found| {
                let enter_bit = if found.uid() == self.uid {
                    0o100
                } else if found.gid() == other.gid {
                    0o010
                } else {
                    0o001
                };
                found.mode() & enter_bit != 0
            })
        })
    }

    /// An error if this user may not enter the folder.
    pub(crate) fn check_can_enter(&self, path: &Path) -> Result<()> {
        if self.can_enter(path) {
            return Ok(());
        }
        let account = self
            .other
            .as_ref()
            .map_or_else(String::new, |other| other.name.clone());
        Err(LocalPostgresError::Unreachable {
            account,
            path: path.to_owned(),
        })
    }
}

/// Finds the user of this name in the text of /etc/passwd: `name:x:uid:gid:…`.
fn find_user(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_wanted = fields.next()? == name;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        is_wanted.then(|| Account {
            uid,
            other: Some(OtherUser {
                name: name.to_owned(),
                gid,
            }),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nbroken\nnobody:x:65534:65533::/:/bin/false\n";

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let nobody = find_user(PASSWD, "nobody").unwrap();
        assert_eq!((nobody.uid, nobody.other.unwrap().gid), (65534, 65533));
        assert!(find_user(PASSWD, "body").is_none());
    }

    #[test]
    fn another_user_cannot_enter_a_private_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let other_account = Account {
            uid: 4_000_000,
            other: Some(OtherUser {
                name: "stranger".into(),
                gid: 4_000_000,
            }),
        };
        assert!(!other_account.can_enter(folder.path()));
        assert!(other_account.can_enter(Path::new("/")));
    }
}
