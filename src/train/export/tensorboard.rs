//! Event files of TensorBoard: records with masked CRC-32C, each an `Event` with a `Summary` of one scalar.
//!
//! Follows `tensorflow/core/lib/io/record_writer.h`, `event.proto` and `summary.proto`.

use super::protobuf::Message;
use crate::train::runs::{Curves, Quantity};
use std::io::{self, Write};

/// The largest number of points of a curve: TensorBoard itself keeps a thousand, and longer curves make files of
/// gigabytes.
const MOST: usize = 100_000;

/// CRC-32C (Castagnoli), reflected, by the byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, b| TABLE[usize::from(crc as u8 ^ b)] ^ crc >> 8)
}

/// The masked checksum in records, because the checksum of data that contains checksums is weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn record(out: &mut dyn Write, data: &[u8]) -> io::Result<()> {
    let len = (data.len() as u64).to_le_bytes();
    out.write_all(&len)?;
    out.write_all(&masked(&len).to_le_bytes())?;
    out.write_all(data)?;
    out.write_all(&masked(data).to_le_bytes())
}

fn scalar(out: &mut dyn Write, wall_s: f64, step: u64, tag: &str, value: f32) -> io::Result<()> {
    let value = Message::new().text(1, tag).float(2, value);
    let event = Message::new().double(1, wall_s).int(2, step as i64).message(5, &Message::new().message(1, &value));
    record(out, &event.into_bytes())
}

/// The tag of a quantity.
const fn tag(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Loss => "loss/train",
        Quantity::Accuracy => "accuracy/train",
        Quantity::UpdateMax => "update/max",
        Quantity::GradNorm => "update/grad_norm",
        Quantity::Lr => "optimizer/lr",
        Quantity::LossScale => "optimizer/loss_scale",
        Quantity::StepUs => "time/step_us",
        Quantity::FeedUs => "time/feed_us",
    }
}

/// Writes the curves of a run that began at `started_ms` (milliseconds since 1970). For curves with more than a hundred
/// thousand steps every n-th step is written, and the last.
///
/// # Errors
/// If the file cannot be written.
pub fn write_events(out: &mut dyn Write, curves: &Curves, started_ms: u64) -> io::Result<()> {
    let start_s = started_ms as f64 * 1e-3;
    record(out, &Message::new().double(1, start_s).text(3, "brain.Event:2").into_bytes())?;
    let stride = curves.len().div_ceil(MOST).max(1);
    let measured: Vec<Quantity> =
        Quantity::ALL.into_iter().filter(|q| curves.values(*q).iter().any(|v| v.is_finite())).collect();
    let mut evaluations = curves.evaluations.iter().peekable();
    let evaluated = ["loss", "accuracy"].map(|what| format!("{what}/{}", curves.evaluated_name()));
    let ms = |step: u64| curves.ms(step.saturating_sub(curves.before + 1) as usize);
    for (layer, name) in curves.layers.names.iter().enumerate() {
        let name = format!("update/{name}");
        for (steps, top) in curves.layers.steps().iter().zip(curves.layers.tops(layer)) {
            scalar(out, start_s + ms(steps[1]) * 1e-3, steps[1], &name, top)?;
        }
    }
    for index in 0..curves.len() {
        let step = curves.before + index as u64 + 1;
        let wall_s = start_s + curves.ms(index) * 1e-3;
        if index % stride == 0 || index + 1 == curves.len() {
            for quantity in &measured {
                let value = curves.values(*quantity)[index];
                if value.is_finite() {
                    scalar(out, wall_s, step, tag(*quantity), value)?;
                }
            }
        }
        while let Some(e) = evaluations.next_if(|e| e.step <= step) {
            let wall_s = start_s + e.ms * 1e-3;
            scalar(out, wall_s, e.step, &evaluated[0], e.loss as f32)?;
            if e.accuracy.is_finite() {
                scalar(out, wall_s, e.step, &evaluated[1], e.accuracy as f32)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::decode;
    use super::super::tests::{curves, with_layers};
    use super::*;

    #[test]
    fn checksums_are_those_of_the_definition() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn records_read_back_as_scalars() {
        let mut file = Vec::new();
        write_events(&mut file, &with_layers(), 1_700_000_000_000).unwrap();
        let mut rest = file.as_slice();
        let (mut tags, mut versions) = (std::collections::BTreeMap::<String, Vec<(i64, f32)>>::new(), 0);
        while !rest.is_empty() {
            let len = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(masked(&rest[..8]).to_le_bytes(), rest[8..12]);
            let data = &rest[12..12 + len];
            assert_eq!(masked(data).to_le_bytes(), rest[12 + len..16 + len]);
            rest = &rest[16 + len..];
            versions += decode::all(data, 3).len();
            let step = decode::all(data, 2).first().map_or(0, decode::Wire::int);
            for summary in decode::all(data, 5) {
                for value in decode::all(summary.bytes(), 1) {
                    let tag = decode::all(value.bytes(), 1)[0].text().to_owned();
                    tags.entry(tag).or_default().push((step, decode::all(value.bytes(), 2)[0].float()));
                }
            }
        }
        assert_eq!(versions, 1);
        assert_eq!(tags["loss/train"].len(), curves().len());
        assert_eq!(tags["update/L0:Dense"], [(10, 0.2), (30, 0.5)]);
        assert_eq!(tags["loss/held_out"], [(20, 0.25)]);
        assert_eq!(tags["loss/train"][0], (1, curves().values(Quantity::Loss)[0]));
        assert!(!tags.contains_key("optimizer/loss_scale"));
    }
}
