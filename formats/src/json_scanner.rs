//! Finds the end of a JSON value without parsing it.

/// Tracks the brackets and quotes of a JSON value.
#[derive(Default)]
pub(crate) struct JsonScanner {
    /// Number of open brackets.
    depth: u64,
    /// One bit for each of the 128 innermost open brackets: 1 for a list, 0 for an object. The
    /// lowest bit is the innermost bracket.
    lists: u128,
    /// Whether the position is inside a string.
    within_text: bool,
    /// Whether the last byte was the backslash of an escape sequence.
    escaped: bool,
    /// Whether the value is a number or a word (`true`, `null`).
    scalar: bool,
}

impl JsonScanner {
    /// Scans the next bytes. Returns how many of them belong to the value, and whether the value
    /// ends with them.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (index, byte) in bytes.iter().enumerate() {
            if self.within_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.within_text = false;
                        if self.depth == 0 {
                            return (index + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' | b'[' | b'{' if self.scalar => return (index, true),
                b'"' => self.within_text = true,
                b'[' | b'{' => {
                    self.depth += 1;
                    self.lists = self.lists << 1 | u128::from(*byte == b'[');
                }
                b']' | b'}' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                    return (index, true);
                }
                b']' | b'}' => {
                    self.depth -= 1;
                    self.lists >>= 1;
                    if self.depth == 0 {
                        return (index + 1, true);
                    }
                }
                _ if self.depth > 0 => {}
                _ => self.scalar = true,
            }
        }
        (bytes.len(), false)
    }

    /// Whether the value may end here: it is a number or a word.
    pub(crate) const fn can_end(&self) -> bool {
        self.scalar
    }

    /// Whether the position is inside a string.
    pub(crate) const fn within_text(&self) -> bool {
        self.within_text
    }

    /// Whether the innermost open bracket is a list's.
    pub(crate) const fn within_list(&self) -> bool {
        self.lists & 1 == 1
    }
}
