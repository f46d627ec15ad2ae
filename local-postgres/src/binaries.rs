use std::cmp::Reverse;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LocalPostgresError, Result};

/// Oldest major version that anneal supports.
const OLDEST: u32 = 15;

/// Parents of versioned installations, and what stands between a parent's entry and its programs.
/// An entry counts when its name starts with the second field.
const PLACES: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("/opt/homebrew/opt", "postgresql@", "bin"),                 // Homebrew on Apple silicon
    ("/usr/local/opt", "postgresql@", "bin"),                    // Homebrew on Intel
    ("/usr", "pgsql-", "bin"),                                   // RPMs of postgresql.org
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

/// A version of PostgreSQL, such as 18.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 18 in 18.1.
    pub major: u32,
    /// 1 in 18.1; 0 for a version that is not released yet.
    pub minor: u32,
}

impl Version {
    /// Reads the number in `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `18.1` or `19beta2`.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let number = text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
        let digits =
            |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
        let minor = number.split_once('.').and_then(|(_, minor)| digits(minor)).unwrap_or(0);
        Some(Version { major: digits(number)?, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A folder that holds `initdb` and `postgres`, of a version that anneal supports.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    version: Version,
}

impl Binaries {
    /// The programs in `wanted` when given (callers pass what ANNEAL_PG_BIN says), else the first found of: `PATH`,
    /// then the places of Debian, Homebrew, RPM and Postgres.app, newest version first.
    pub fn find(wanted: Option<&Path>) -> Result<Binaries> {
        if let Some(folder) = wanted {
            let missing = || LocalPostgresError::NoBinaries { looked_in: folder.display().to_string() };
            return supported(Binaries::read(folder).ok_or_else(missing)?);
        }
        let mut too_old = None;
        for folder in on_path().chain(std::iter::once_with(installed).flatten()) {
            match Binaries::read(&folder).map(supported) {
                Some(Ok(found)) => return Ok(found),
                Some(Err(old)) => too_old = Some(old),
                None => {}
            }
        }
        let places = PLACES.map(|(parent, prefix, bin)| format!("{parent}/{prefix}*/{bin}")).join(", ");
        Err(too_old.unwrap_or(LocalPostgresError::NoBinaries { looked_in: format!("PATH, {places}") }))
    }

    /// What [`Binaries::find`] finds; where there is nothing, PostgreSQL 18 downloaded into `cache` (about 12 MB, from the
    /// releases of theseus-rs/postgresql-binaries, digest checked), or what an earlier call left there.
    /// An explicit `wanted` is never replaced by a download.
    #[cfg(feature = "download")]
    pub async fn find_or_download(wanted: Option<&Path>, cache: &Path) -> Result<Binaries> {
        match Binaries::find(wanted) {
            Err(LocalPostgresError::NoBinaries { .. } | LocalPostgresError::TooOld { .. }) if wanted.is_none() => {
                crate::download::download(cache).await
            }
            found => found,
        }
    }

    /// Where the programs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version of `postgres`, as it said itself.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The path of one program, such as `psql`. Only `initdb` and `postgres` are certain to exist.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// None when the folder lacks a program, or `postgres` does not run here.
    pub(crate) fn read(folder: &Path) -> Option<Binaries> {
        // On a PATH there may be links to the programs; PostgreSQL finds its own files beside the real ones.
        let postgres = fs::canonicalize(folder.join("postgres")).ok()?;
        let folder = postgres.parent()?.to_owned();
        if !folder.join("initdb").is_file() {
            return None;
        }
        let said = Command::new(&postgres).arg("--version").output().ok()?;
        let version = Version::parse(&String::from_utf8_lossy(&said.stdout))?;
        Some(Binaries { folder, version })
    }
}

fn supported(found: Binaries) -> Result<Binaries> {
    if found.version.major < OLDEST {
        return Err(LocalPostgresError::TooOld { folder: found.folder, version: found.version });
    }
    Ok(found)
}

/// Folders on PATH that hold `initdb`; the one that `pg_config` names, asked only when the others do not serve.
fn on_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.into_iter().filter(|folder| folder.join("initdb").is_file()).chain(
        std::iter::once_with(|| {
            let said = Command::new("pg_config").arg("--bindir").output().ok()?;
            Some(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()))
        })
        .flatten(),
    )
}

/// What the usual places hold, newest first.
fn installed() -> Vec<PathBuf> {
    let mut found: Vec<(Version, PathBuf)> = Vec::new();
    for (parent, prefix, bin) in PLACES {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        found.extend(entries.filter_map(|entry| {
            let version = Version::parse(entry.file_name().to_str()?.strip_prefix(prefix)?)?;
            Some((version, entry.path().join(bin)))
        }));
    }
    found.sort_by_key(|(version, _)| Reverse(*version));
    found.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_postgres_says_them() {
        let parse = |text| Version::parse(text).map(|version| (version.major, version.minor));
        assert_eq!(parse("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some((15, 18)));
        assert_eq!(parse("postgres (PostgreSQL) 19beta2"), Some((19, 0)));
        assert_eq!(parse("postgres (EnterpriseDB)"), None);
    }

    #[test]
    fn an_old_version_is_refused_with_what_to_install() {
        let old = Binaries { folder: "/usr/lib/postgresql/13/bin".into(), version: Version { major: 13, minor: 4 } };
        let refusal = supported(old).unwrap_err().to_string();
        assert!(refusal.contains("13.4") && refusal.contains("apt-get install") && refusal.contains("brew install"));
    }

    #[test]
    fn an_explicit_folder_without_programs_is_an_error_even_where_postgres_is_installed() {
        let empty = tempfile::tempdir().unwrap();
        let error = Binaries::find(Some(empty.path())).unwrap_err();
        assert!(matches!(error, LocalPostgresError::NoBinaries { .. }), "{error}");
    }
}
