//! Style sheet, scripts and icon. A file's path has a digest of its content, so that browsers may
//! keep it forever.

/// A file that browsers load.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its name.
    pub name: &'static str,
    /// `/assets/`, the first 16 hexadecimal digits of its SHA-256, `/`, and its name.
    pub path: &'static str,
    /// Its content type.
    pub content_type: &'static str,
    /// Compressed by gzip.
    pub gzip: &'static [u8],
    /// Not compressed.
    pub plain: &'static [u8],
}

/// All files.
pub const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The file with this path.
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// The path of the file with this name, for templates. Empty if there is none.
pub(crate) fn path(name: &str) -> &'static str {
    ASSETS
        .iter()
        .find(|asset| asset.name == name)
        .map_or("", |asset| asset.path)
}
