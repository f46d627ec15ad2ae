//! Counts the streams that a client of HTTP/2 opens, by the heads of its frames as they come by: what is read at once stands in
//! the connection's memory at once, before anything of it is answered.

/// Bytes of the preface of HTTP/2, before the first frame.
pub(super) const PREFACE_BYTES: usize = 24;
/// Bytes of a frame's head: length (3), kind, flags, stream (4).
const HEAD_BYTES: usize = 9;
/// The kind of frame that begins a request.
const HEADERS: u8 = 1;

/// Where a client is between two frames.
pub(super) struct FrameCounter {
    /// Bytes until the next frame's head.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of that head that have come.
    come: usize,
}

impl FrameCounter {
    /// A client that has sent nothing yet.
    pub(super) const fn new() -> Self {
        Self { skip: PREFACE_BYTES, head: [0; HEAD_BYTES], come: 0 }
    }

    /// How many requests begin with these bytes; trailers, which no gRPC client sends, count as one.
    pub(super) fn requests_in(&mut self, mut bytes: &[u8]) -> u32 {
        let mut requests = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let more = (HEAD_BYTES - self.come).min(bytes.len());
            self.head[self.come..self.come + more].copy_from_slice(&bytes[..more]);
            self.come += more;
            bytes = &bytes[more..];
            if self.come == HEAD_BYTES {
                let [high, middle, low, kind, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.come = 0;
                requests += u32::from(kind == HEADERS);
            }
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_the_bytes_come() {
        let mut sent = vec![b'P'; PREFACE_BYTES];
        // Settings, a request with a head of 300 bytes, its body, and another request.
        for (length, kind) in [(0_u32, 4), (300, HEADERS), (5, 0), (2, HEADERS)] {
            sent.extend(&length.to_be_bytes()[1..]);
            sent.extend([kind, 0, 0, 0, 0, 1]);
            sent.extend(vec![HEADERS; length as usize]);
        }
        for size in [1, 2, 7, 9, 100, sent.len()] {
            let mut frames = FrameCounter::new();
            let requests: u32 = sent.chunks(size).map(|bytes| frames.requests_in(bytes)).sum();
            assert_eq!(requests, 2, "in chunks of {size}");
        }
    }
}
