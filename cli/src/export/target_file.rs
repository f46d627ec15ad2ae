//! The target of an export. A file is written to a temporary folder, and moved to its path when
//! complete. A device or a pipe is written directly.

use std::{
    fs::{File, Metadata, OpenOptions, Permissions},
    io::BufWriter,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anneal_formats::Output;
use anyhow::Context as _;
use tempfile::{TempDir, TempPath};

/// Mode of a new file: only the owner may read it, because conversations are private.
const PRIVATE_MODE: u32 = 0o600;

/// The target of an export.
pub(super) enum ExportTarget {
    /// A file that is moved to its path when complete.
    File(StagedFile),
    /// A device or a pipe, written directly.
    Stream(PathBuf),
}

/// A file in a temporary folder.
pub(super) struct StagedFile {
    path: PathBuf,
    /// The permissions of the file that it replaces.
    permissions: Option<Permissions>,
    /// In the same folder as the path, so that the file can be moved. Removed when dropped.
    folder: TempDir,
}

impl ExportTarget {
    /// Opens a target. An existing file is an error without `--force`. Follows links.
    pub(super) fn open(path: &Path, force: bool) -> anyhow::Result<Self> {
        let is_there = std::fs::symlink_metadata(path).is_ok();
        anyhow::ensure!(
            force || !is_there,
            "{} exists already; --force overwrites it",
            path.display()
        );
        let cannot_write = || format!("cannot write {}", path.display());
        let path = if is_there {
            path.canonicalize().with_context(cannot_write)?
        } else {
            path.to_owned()
        };
        let old: Option<Metadata> = if is_there {
            Some(std::fs::metadata(&path).with_context(cannot_write)?)
        } else {
            None
        };
        anyhow::ensure!(
            !old.as_ref().is_some_and(Metadata::is_dir),
            "{} is a folder",
            path.display()
        );
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self::Stream(path));
        }
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = TempDir::with_prefix_in(".anneal-export-", parent)
            .with_context(|| format!("cannot write in {}", parent.display()))?;
        Ok(Self::File(StagedFile {
            permissions: old.map(|old| old.permissions()),
            path,
            folder,
        }))
    }

    /// The output for the writer.
    pub(super) fn output(&self) -> anyhow::Result<Output> {
        match self {
            Self::File(staged) => Ok(Output::File(staged.temporary_path())),
            Self::Stream(path) => {
                let file: File = OpenOptions::new().write(true).open(path)?;
                Ok(Output::Stream(Box::new(BufWriter::new(file))))
            }
        }
    }
}

impl StagedFile {
    fn temporary_path(&self) -> PathBuf {
        self.folder.path().join("whole")
    }

    /// Moves the complete file to its path.
    pub(super) fn commit(self) -> anyhow::Result<()> {
        let written = TempPath::try_from_path(self.temporary_path())?;
        let is_new = self.permissions.is_none();
        let permissions = self
            .permissions
            .unwrap_or_else(|| Permissions::from_mode(PRIVATE_MODE));
        std::fs::set_permissions(&written, permissions)?;
        if is_new {
            written.persist_noclobber(&self.path)?;
        } else {
            written.persist(&self.path)?;
        }
        Ok(())
    }
}
