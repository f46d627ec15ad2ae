//! The body of an answer: read in bounds of bytes and time, known by its first bytes, handed on line by line.

use futures::{Stream, stream};
use reqwest::{Response, header::CONTENT_TYPE};

use super::{CallFailure, http::Clock};

const TOO_LARGE: CallFailure = CallFailure::Broken("it is larger than response_bytes");
const NO_TEXT: CallFailure = CallFailure::Broken("it is no UTF-8");

/// Fields that a stream of events may begin with; a comment has no name.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Server-sent events.
    Events,
    /// One JSON document.
    Document,
}

/// A body under way.
pub(super) struct Body {
    response: Response,
    clock: Clock,
    /// Bytes that may still come.
    left: usize,
    buffer: Vec<u8>,
    /// What of the buffer is read.
    start: usize,
    /// How far the buffer was searched for the end of a line.
    searched: usize,
    has_begun: bool,
    is_over: bool,
}

impl Body {
    /// The body of an answer that is a success by its status.
    pub(super) fn of(response: Response, clock: Clock, bytes: usize) -> Result<Self, CallFailure> {
        let kind = response.headers().get(CONTENT_TYPE).map(reqwest::header::HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.trim_ascii_start().starts_with(b"text/html")) {
            return Err(CallFailure::Broken("it is a page"));
        }
        if response.content_length().is_some_and(|length| length > bytes as u64) {
            return Err(TOO_LARGE);
        }
        Ok(Self::new(response, clock, bytes))
    }

    fn new(response: Response, clock: Clock, bytes: usize) -> Self {
        let (start, searched) = (0, 0);
        Self { response, clock, left: bytes, buffer: Vec::new(), start, searched, has_begun: false, is_over: false }
    }

    /// The first bytes of a body, as many as come in time; the connection is dropped after them.
    pub(super) async fn prefix(response: Response, clock: Clock, bytes: usize) -> Vec<u8> {
        let mut body = Self::new(response, clock, usize::MAX);
        while body.buffer.len() < bytes && matches!(body.read_more().await, Ok(true)) {}
        body.buffer.truncate(bytes);
        body.buffer
    }

    /// What the body is, by its first bytes: content types are often wrong.
    pub(super) async fn form(&mut self) -> Result<Form, CallFailure> {
        loop {
            self.skip_blank();
            let unread = &self.buffer[self.start..];
            match unread.first() {
                Some(b'{') => return Ok(Form::Document),
                Some(b'<') => return Err(CallFailure::Broken("it is a page")),
                Some(_) if FIELDS.iter().any(|field| unread.starts_with(field)) => return Ok(Form::Events),
                // Not even the beginning of a field: no more bytes will make it one.
                Some(_) if !FIELDS.iter().any(|field| field.starts_with(unread)) => {
                    return Err(CallFailure::Broken("it is not the protocol"));
                }
                _ => {}
            }
            if !self.read_more().await? {
                return Err(CallFailure::Broken("it is empty"));
            }
        }
    }

    /// Skips white space and byte order marks: within a line they would be content, and the reader of events does not
    /// survive a mark.
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

    /// The whole rest. What has come is kept when the future is dropped.
    pub(super) async fn rest(&mut self) -> Result<&str, CallFailure> {
        while self.read_more().await? {}
        std::str::from_utf8(&self.buffer[self.start..]).map_err(|_| NO_TEXT)
    }

    /// The rest, line by line, and at its end a blank line: it dispatches an event that lacks its own.
    ///
    /// Whole lines, because the reader of events looks at an unfinished line from its start with every piece that comes.
    pub(super) fn lines(self) -> impl Stream<Item = Result<String, CallFailure>> + Send {
        stream::try_unfold(self, |mut body| async move { Ok(body.line().await?.map(|line| (line, body))) })
    }

    async fn line(&mut self) -> Result<Option<String>, CallFailure> {
        loop {
            let from = self.searched.max(self.start);
            if let Some(end) = self.buffer[from..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer[self.start..=from + end].to_vec();
                self.start = from + end + 1;
                return String::from_utf8(line).map(Some).map_err(|_| NO_TEXT);
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

    /// Reads one more piece; false at the end.
    async fn read_more(&mut self) -> Result<bool, CallFailure> {
        let phase = if self.has_begun { "the answer paused for too long" } else { "the answer did not begin in time" };
        let chunk = self.clock.wait(self.response.chunk(), phase).await?;
        let Some(chunk) = chunk.map_err(|_| CallFailure::Broken("it was cut off"))? else { return Ok(false) };
        self.left = self.left.checked_sub(chunk.len()).ok_or(TOO_LARGE)?;
        self.has_begun = true;
        self.buffer.extend_from_slice(&chunk);
        Ok(true)
    }
}
