//! Where a JSON value ends, seen without parsing it.

/// Follows a JSON value by its brackets and quotes.
#[derive(Default)]
pub(crate) struct Brackets {
    depth: u64,
    /// Which of the innermost open ones are lists: a bit each, the lowest is the innermost.
    lists: u128,
    text: bool,
    escaped: bool,
    scalar: bool,
}

impl Brackets {
    /// How many of the bytes belong to the value, and whether it ends with them.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (index, byte) in bytes.iter().enumerate() {
            if self.text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.text = false;
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
                b'"' => self.text = true,
                b'[' | b'{' => {
                    self.depth += 1;
                    self.lists = self.lists << 1 | u128::from(*byte == b'[');
                }
                b']' | b'}' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => return (index, true),
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

    /// Whether the value could end here: a number or a word.
    pub(crate) const fn ended(&self) -> bool {
        self.scalar
    }

    /// Whether it stands within a text.
    pub(crate) const fn within_text(&self) -> bool {
        self.text
    }

    /// Whether the innermost bracket that is open is a list's.
    pub(crate) const fn within_list(&self) -> bool {
        self.lists & 1 == 1
    }
}
