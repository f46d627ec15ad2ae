//! The clocks of processes, which the test changes by libfaketime. Monotonic time stays right, as
//! when an administrator sets the system's clock.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anneal_local_postgres::Binaries;

use crate::{Folder, postgres_binaries};

/// Library folders of Debian, Fedora and similar systems.
const LIBRARY_FOLDERS: [&str; 4] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];
/// The interval in seconds at which a process reads its clock's file again.
const REREAD_SECONDS: &str = "1";

/// Clocks of processes. A file per clock holds its offset from the system's time.
pub struct Clocks {
    library: PathBuf,
    folder: Folder,
}

impl Clocks {
    /// Clocks without an offset. Returns None, and prints why, if libfaketime is missing.
    pub fn find() -> Option<Self> {
        let libraries = LIBRARY_FOLDERS
            .iter()
            .map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1"));
        let Some(library) = libraries.into_iter().find(|library| library.is_file()) else {
            println!("skipped: there is no libfaketime (scripts/debian.sh faketime)");
            return None;
        };
        Some(Self {
            library,
            folder: Folder::new(),
        })
    }

    /// Sets a clock's offset in seconds. The process notices it within a second.
    pub fn set(&self, name: &str, seconds: i64) {
        // Renaming is atomic, so that no process reads half of the file.
        let written = self
            .folder
            .file(&format!("{name}.new"), &format!("{seconds:+}\n"));
        std::fs::rename(written, self.file(name)).expect("the rename succeeds");
    }

    /// The environment of a process with this clock.
    pub fn variables(&self, name: &str) -> [(&'static str, String); 5] {
        if !self.file(name).exists() {
            self.set(name, 0);
        }
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            (
                "FAKETIME_TIMESTAMP_FILE",
                self.file(name).display().to_string(),
            ),
            ("FAKETIME_CACHE_DURATION", REREAD_SECONDS.to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }

    /// The programs of a PostgreSQL with this clock: scripts that start the real ones. The script
    /// of `postgres` also sets the environment of the clock.
    pub fn postgres(&self, name: &str) -> Binaries {
        let (real, folder) = (postgres_binaries(), self.folder.path().join("bin"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let variables = self.variables(name);
        let exports: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect();
        let exports = exports.concat();
        for (program, first_lines) in [("postgres", exports.as_str()), ("initdb", "")] {
            let (path, real_path) = (folder.join(program), real.program(program));
            std::fs::write(
                &path,
                format!(
                    "#!/bin/sh\n{first_lines}exec '{}' \"$@\"\n",
                    real_path.display()
                ),
            )
            .expect("the file is written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .expect("the file is made executable");
        }
        Binaries::find(Some(&folder)).expect("the wrapped programs are found")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
