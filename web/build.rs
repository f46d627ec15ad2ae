//! Compresses the files that browsers load, and makes their table.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};

/// Files of this crate and their content types.
const FILES: &[(&str, &str)] = &[
    ("assets/anneal.css", "text/css; charset=utf-8"),
    ("assets/live.js", "text/javascript; charset=utf-8"),
    ("assets/draw.js", "text/javascript; charset=utf-8"),
    ("assets/icon.svg", "image/svg+xml"),
    ("vendor/htmx/htmx.min.js", "text/javascript; charset=utf-8"),
];

/// Hexadecimal digits of the digest in a path.
const DIGEST_DIGITS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let target = PathBuf::from(env::var("OUT_DIR")?);
    let mut table = String::from("&[\n");
    for (file, content_type) in FILES {
        println!("cargo::rerun-if-changed={file}");
        let path = source.join(file);
        let plain = fs::read(&path)?;
        let name = file_name(&path)?.to_owned();
        let gzip = target.join(format!("{name}.gz"));
        fs::write(&gzip, compress(&plain)?)?;
        let digest = hex::encode(Sha256::digest(&plain));
        let digest = digest.get(..DIGEST_DIGITS).ok_or("a digest is too short")?;
        let (gzip, path) = (gzip.to_string_lossy(), path.to_string_lossy());
        writeln!(
            table,
            "Asset {{ name: {name:?}, path: \"/assets/{digest}/{name}\", content_type: {content_type:?}, gzip: include_bytes!({gzip:?}), plain: include_bytes!({path:?}) }},"
        )?;
    }
    table.push(']');
    fs::write(target.join("assets.rs"), table)?;
    Ok(())
}

fn file_name(path: &Path) -> Result<&str, Box<dyn Error>> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| "a file has no name".into())
}

/// Compresses without a time, so that equal files give equal bytes.
fn compress(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}
