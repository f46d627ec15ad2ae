//! Reads the body of an answer within limits of bytes and time. The first bytes show the format.
//! A stream of events is passed on line by line.

use futures::{Stream, stream};
use reqwest::{Response, header::CONTENT_TYPE};

use super::{CallFailure, call_limits::Deadlines};
use crate::provider_error::is_html;

const TOO_LARGE: CallFailure = CallFailure::Broken("it is larger than response_bytes");
const NOT_UTF8: CallFailure = CallFailure::Broken("it is not UTF-8");

/// Field names with which a stream of server-sent events may begin. A comment has an empty name.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// Server-sent events.
    Events,
    /// One JSON document.
    Document,
}

/// A body that is being read.
pub(super) struct Body {
    response: Response,
    deadlines: Deadlines,
    /// Bytes that may still be read.
    bytes_left: usize,
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that are consumed.
    start: usize,
    /// Bytes of the buffer already searched for a line end.
    searched: usize,
    /// Whether any bytes have arrived.
    has_begun: bool,
    /// Whether the body has ended and [`Self::lines`] has added its two line feeds.
    is_over: bool,
}

impl Body {
    /// The body of an answer with a success status. Fails if the headers announce HTML, or more
    /// than `bytes`.
    pub(super) fn of(
        response: Response,
        deadlines: Deadlines,
        bytes: usize,
    ) -> Result<Self, CallFailure> {
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .map(reqwest::header::HeaderValue::as_bytes);
        if content_type.is_some_and(is_html) {
            return Err(CallFailure::Broken("it is an HTML page"));
        }
        if response
            .content_length()
            .is_some_and(|length| length > bytes as u64)
        {
            return Err(TOO_LARGE);
        }
        Ok(Self::new(response, deadlines, bytes))
    }

    fn new(response: Response, deadlines: Deadlines, bytes: usize) -> Self {
        let (start, searched) = (0, 0);
        Self {
            response,
            deadlines,
            bytes_left: bytes,
            buffer: Vec::new(),
            start,
            searched,
            has_begun: false,
            is_over: false,
        }
    }

    /// Reads at most `bytes` of a body, or as many as arrive before a deadline or a failure, and
    /// closes the connection.
    pub(super) async fn read_prefix(
        response: Response,
        deadlines: Deadlines,
        bytes: usize,
    ) -> Vec<u8> {
        let mut body = Self::new(response, deadlines, usize::MAX);
        while body.buffer.len() < bytes && matches!(body.read_more().await, Ok(true)) {}
        body.buffer.truncate(bytes);
        body.buffer
    }

    /// Whether any bytes have arrived.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Detects the format by the first bytes, because content types are often wrong.
    pub(super) async fn detect_format(&mut self) -> Result<BodyFormat, CallFailure> {
        loop {
            self.skip_blank();
            let unread = &self.buffer[self.start..];
            match unread.first() {
                Some(b'{') => return Ok(BodyFormat::Document),
                Some(b'<') => return Err(CallFailure::Broken("it is an HTML page")),
                Some(_) if FIELDS.iter().any(|field| unread.starts_with(field)) => {
                    return Ok(BodyFormat::Events);
                }
                // Not the beginning of a field name, so more bytes do not help.
                Some(_) if !FIELDS.iter().any(|field| field.starts_with(unread)) => {
                    return Err(CallFailure::Broken("it does not follow the protocol"));
                }
                _ => {}
            }
            if !self.read_more().await? {
                return Err(CallFailure::Broken("it is empty"));
            }
        }
    }

    /// Skips white space and byte order marks before the first field: the event parser would take
    /// white space as part of the field's name, and it fails at a byte order mark.
    fn skip_blank(&mut self) {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        loop {
            match &self.buffer[self.start..] {
                [first, ..] if first.is_ascii_whitespace() => self.start += 1,
                unread if unread.starts_with(MARK) => self.start += MARK.len(),
                _ => return,
            }
        }
    }

    /// Reads all of the rest. Cancel safe: dropping the future keeps what was read.
    pub(super) async fn read_to_end(&mut self) -> Result<&str, CallFailure> {
        while self.read_more().await? {}
        std::str::from_utf8(&self.buffer[self.start..]).map_err(|_| NOT_UTF8)
    }

    /// The rest of the body, line by line, each with its line feed. Two line feeds are added at the
    /// end of the body: the first ends a last line that has none, and the second is the blank line
    /// that ends the last event.
    ///
    /// Only whole lines are passed on, because the event parser scans an incomplete line from its
    /// start again for every chunk.
    pub(super) fn lines(self) -> impl Stream<Item = Result<String, CallFailure>> + Send {
        stream::try_unfold(self, |mut body| async move {
            Ok(body.read_line().await?.map(|line| (line, body)))
        })
    }

    async fn read_line(&mut self) -> Result<Option<String>, CallFailure> {
        loop {
            let from = self.searched.max(self.start);
            if let Some(end) = self.buffer[from..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer[self.start..=from + end].to_vec();
                self.start = from + end + 1;
                return String::from_utf8(line).map(Some).map_err(|_| NOT_UTF8);
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            self.searched = self.buffer.len();
            if self.is_over {
                return Ok(None);
            }
            if !self.read_more().await? {
                self.is_over = true;
                self.buffer.extend_from_slice(b"\n\n");
            }
        }
    }

    /// Reads one more chunk; false at the end.
    async fn read_more(&mut self) -> Result<bool, CallFailure> {
        let timeout_text = if self.has_begun {
            "the answer paused for too long"
        } else {
            "the answer did not begin in time"
        };
        let chunk = self
            .deadlines
            .apply(self.response.chunk(), timeout_text)
            .await?;
        let Some(chunk) = chunk.map_err(|_| CallFailure::Broken("it was cut off"))? else {
            return Ok(false);
        };
        self.bytes_left = self.bytes_left.checked_sub(chunk.len()).ok_or(TOO_LARGE)?;
        self.has_begun = true;
        self.buffer.extend_from_slice(&chunk);
        Ok(true)
    }
}
