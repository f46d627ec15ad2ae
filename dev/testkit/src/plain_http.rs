//! A minimal blocking HTTP/1.1 client for servers that tests start: one POST per connection.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// A call fails if no byte arrives from the server for this long.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

/// An answer of the server.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: HashMap<String, String>,
    /// The body; chunked encoding is decoded.
    pub body: Vec<u8>,
}

/// Posts JSON to `http://host:port/path`.
pub fn post_json(url: &str, json: &str) -> std::io::Result<HttpAnswer> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| invalid("not an http URL"))?;
    let (host, path) = rest
        .split_once('/')
        .ok_or_else(|| invalid("a URL without a path"))?;
    let mut socket = TcpStream::connect(host)?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    let bytes = json.len();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n\
         Connection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(json.as_bytes())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> std::io::Result<HttpAnswer> {
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .ok_or_else(|| invalid("no end of headers"))?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let body = &answer[end + 4..];
    let chunked = headers
        .get("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let body = if chunked {
        join_chunks(body)?
    } else {
        body.to_vec()
    };
    Ok(HttpAnswer {
        status: status.ok_or_else(|| invalid("no status"))?,
        headers,
        body,
    })
}

/// Decodes a chunked body.
fn join_chunks(mut chunks: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = chunks
            .windows(2)
            .position(|bytes| bytes == b"\r\n")
            .ok_or_else(|| invalid("no chunk size"))?;
        let size = String::from_utf8_lossy(&chunks[..line_end]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .map_err(|_| invalid("a chunk size that is not a number"))?;
        chunks = &chunks[line_end + 2..];
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(
            chunks
                .get(..size)
                .ok_or_else(|| invalid("a chunk that ends early"))?,
        );
        chunks = chunks
            .get(size + 2..)
            .ok_or_else(|| invalid("a chunk without its end"))?;
    }
}

fn invalid(what: &'static str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_headers_are_parsed() {
        let answer = b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n4\r\n{\"a\"\r\n3;x\r\n:1}\r\n0\r\n\r\n";
        let read = parse(answer).expect("an answer");
        assert_eq!(
            (
                read.status,
                read.headers["x"].as_str(),
                read.body.as_slice()
            ),
            (400, "y", b"{\"a\":1}".as_slice())
        );
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc").is_err());
    }
}
