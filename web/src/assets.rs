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

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn htmx_is_the_file_that_was_published() {
        let sums = include_str!("../vendor/htmx/SHA256SUMS");
        let htmx = ASSETS
            .iter()
            .find(|asset| asset.name == "htmx.min.js")
            .expect("htmx is in the table");
        let license = include_bytes!("../vendor/htmx/LICENSE");
        for (name, content) in [("htmx.min.js", htmx.plain), ("LICENSE", license.as_slice())] {
            let sum = hex::encode(Sha256::digest(content));
            assert!(sums.contains(&format!("{sum}  {name}\n")), "{name}: {sum}");
        }
    }

    #[test]
    fn all_files_together_are_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(bytes <= 60 * 1024, "{bytes} bytes");
    }

    #[test]
    fn a_file_is_found_by_its_digest_only() {
        for asset in ASSETS {
            let digest = hex::encode(Sha256::digest(asset.plain));
            assert_eq!(
                asset.path,
                format!("/assets/{}/{}", &digest[..16], asset.name)
            );
            assert_eq!(find(asset.path).map(|found| found.name), Some(asset.name));
        }
        assert!(find("/assets/0000000000000000/anneal.css").is_none());
    }

    #[test]
    fn scripts_of_the_page_write_no_html() {
        for asset in ASSETS {
            let is_ours = ["live.js", "draw.js"].contains(&asset.name);
            let text = String::from_utf8_lossy(asset.plain);
            for forbidden in [
                ".innerHTML",
                ".outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(
                    !is_ours || !text.contains(forbidden),
                    "{}: {forbidden}",
                    asset.name
                );
            }
        }
    }
}
