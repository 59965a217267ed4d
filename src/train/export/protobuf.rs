//! Writes protocol buffers: a message consists of its fields one after the other, and a field contains its number and
//! how it is stored.
//!
//! Follows "Protocol Buffers: Encoding", protobuf.dev.

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// A message without fields.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// A whole number: int32, int64, bool or an enumeration.
    #[must_use]
    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.tag(field, 0);
        self.varint(value as u64);
        self
    }

    /// A double.
    #[must_use]
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A float.
    #[must_use]
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Raw bytes.
    #[must_use]
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A text.
    #[must_use]
    pub fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    /// A message inside this one.
    #[must_use]
    pub fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// The encoded message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A reader for tests, written from the definition independently of the writer above.
#[cfg(test)]
pub mod decode {
    /// A field's value as it is stored.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Wire<'a> {
        Varint(u64),
        Fixed64([u8; 8]),
        Bytes(&'a [u8]),
        Fixed32([u8; 4]),
    }

    impl<'a> Wire<'a> {
        pub fn bytes(&self) -> &'a [u8] {
            match self {
                Self::Bytes(b) => b,
                other => panic!("{other:?} is not a text"),
            }
        }

        pub fn text(&self) -> &'a str {
            std::str::from_utf8(self.bytes()).unwrap()
        }

        pub fn int(&self) -> i64 {
            match self {
                Self::Varint(v) => *v as i64,
                other => panic!("{other:?} is not a number"),
            }
        }

        pub fn float(&self) -> f32 {
            match self {
                Self::Fixed32(b) => f32::from_le_bytes(*b),
                other => panic!("{other:?} is not a float"),
            }
        }
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    /// The fields of a message in order.
    pub fn fields(mut bytes: &[u8]) -> Vec<(u32, Wire<'_>)> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let (value, len) = match tag & 7 {
                0 => (Wire::Varint(varint(&mut bytes)), 0),
                1 => (Wire::Fixed64(bytes[..8].try_into().unwrap()), 8),
                2 => {
                    let len = varint(&mut bytes) as usize;
                    (Wire::Bytes(&bytes[..len]), len)
                }
                5 => (Wire::Fixed32(bytes[..4].try_into().unwrap()), 4),
                wire => panic!("wire type {wire}"),
            };
            bytes = &bytes[len..];
            out.push(((tag >> 3) as u32, value));
        }
        out
    }

    /// Every value of one field.
    pub fn all<'a>(bytes: &'a [u8], field: u32) -> Vec<Wire<'a>> {
        fields(bytes).into_iter().filter(|(f, _)| *f == field).map(|(_, w)| w).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_documented() {
        // The examples of the format's documentation.
        assert_eq!(Message::new().int(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").into_bytes(), b"\x12\x07testing");
        let inner = Message::new().int(1, 150);
        assert_eq!(Message::new().message(3, &inner).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let minus = Message::new().int(1, -1).into_bytes();
        assert_eq!((minus.len(), decode::all(&minus, 1)[0].int()), (11, -1));
    }
}
