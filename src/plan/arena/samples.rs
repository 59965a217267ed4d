//! Problems for the tests: small random ones, and the buffers of synthetic training steps.

use super::problem::{Item, Problem};

/// A small generator of repeatable numbers (xorshift64*, Vigna 2016).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number in `[0, end)`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }
}

/// Up to `most` items with mixed sizes and alignments over a short time; some have no bytes.
pub fn random_problem(rng: &mut Rng, most: u64) -> Problem {
    let count = rng.below(most + 1);
    let horizon = 2 + rng.below(30);
    let align = 1 << rng.below(3);
    let items = (0..count)
        .map(|_| {
            let lower = rng.below(horizon);
            let upper = lower + 1 + rng.below(horizon - lower);
            Item { lower, upper, size: rng.below(40), align: if rng.below(2) == 0 { align } else { 1 } }
        })
        .collect();
    Problem::new(items).unwrap()
}

/// This many random problems of up to `most` items each.
pub fn random_problems(seed: u64, count: usize, most: u64) -> impl Iterator<Item = Problem> {
    let mut rng = Rng::new(seed);
    (0..count).map(move |_| random_problem(&mut rng, most))
}

/// Items that fill `height` bytes at every time: new items are as large together as those that end, but divided
/// differently.
///
/// New pieces may not fit in one place, so the bound often cannot be reached.
pub fn full_problem(rng: &mut Rng, steps: u64, height: u64) -> Problem {
    let mut items: Vec<Item> = Vec::new();
    let mut live: Vec<Item> = Vec::new();
    for time in 0..steps {
        let mut free = if time == 0 { height } else { 0 };
        live.retain(|item| {
            let ends = rng.below(3) == 0;
            if ends {
                free += item.size;
                items.push(Item { upper: time, ..*item });
            }
            !ends
        });
        while free > 0 {
            let size = 1 + rng.below(free);
            free -= size;
            live.push(Item { lower: time, upper: steps, size, align: 1 });
        }
    }
    items.append(&mut live);
    Problem::new(items).unwrap()
}

/// A rectangle divided into `count` items at random; their offsets are not kept, so that the bound is known to be
/// reachable.
pub fn cut_rectangle(rng: &mut Rng, count: usize, horizon: u64, height: u64) -> Problem {
    let mut pieces = vec![(0, horizon, height)];
    while pieces.len() < count {
        let at = rng.below(pieces.len() as u64) as usize;
        let (lower, upper, size) = pieces[at];
        if rng.below(2) == 0 && upper - lower > 1 {
            let middle = lower + 1 + rng.below(upper - lower - 1);
            pieces[at].1 = middle;
            pieces.push((middle, upper, size));
        } else if size > 1 {
            let part = 1 + rng.below(size - 1);
            pieces[at].2 = part;
            pieces.push((lower, upper, size - part));
        }
    }
    let items = pieces.into_iter().map(|(lower, upper, size)| Item { lower, upper, size, align: 1 }).collect();
    Problem::new(items).unwrap()
}

/// The transient buffers of one training step of a random convolutional network with residual blocks.
///
/// Forward op i runs at time i, its backward op at `2 layers - i`. Activations live to their backward op, gradients
/// from op to op, skipped tensors and their gradients over whole blocks, workspaces during one op.
pub fn training_step(rng: &mut Rng, layers: u64, align: u64) -> Problem {
    let mut items = Vec::new();
    let mut add = |lower, upper, size| {
        items.push(Item { lower, upper, size, align });
    };
    let backward = |op: u64| 2 * layers - op;
    let mut bytes = 4 * (1 + rng.below(64)) * 4096;
    let mut block_from = None;
    for op in 0..layers {
        // Sizes shrink and grow by small factors, as with strides and changing channel counts.
        match rng.below(8) {
            0 => bytes = (bytes / 2).max(512),
            1 if bytes < 1 << 28 => bytes *= 2,
            2 => bytes += 4 * rng.below(1000),
            _ => {}
        }
        add(op, backward(op) + 1, bytes);
        add(backward(op + 1), backward(op) + 1, bytes);
        if rng.below(3) == 0 {
            add(op, op + 1, 1 + rng.below(1 << 22));
        }
        if rng.below(2) == 0 {
            add(backward(op), backward(op) + 1, 1 + rng.below(1 << 22));
        }
        if rng.below(4) == 0 {
            // A mask or an index that only the backward op reads again.
            add(op, backward(op) + 1, bytes.div_ceil(32));
        }
        match block_from {
            None if rng.below(4) == 0 => block_from = Some((op, bytes)),
            Some((from, size)) if rng.below(3) == 0 => {
                add(backward(op), backward(from) + 1, size);
                block_from = None;
            }
            _ => {}
        }
        if rng.below(3) == 0 {
            // A parameter's gradient waits for the optimizer at the end of the step.
            add(backward(op), 2 * layers + 2, 4 * (64 + rng.below(1 << 18)));
        }
    }
    Problem::new(items).unwrap()
}

/// The buffers of one training step of a plain chain of equal dense layers: five a layer.
pub fn mlp_step(layers: u64, batch: u64, units: u64) -> Problem {
    let end = 2 * layers + 1;
    let mut items = Vec::new();
    for op in 0..layers {
        let backward = end - op;
        let bytes = 4 * batch * units;
        let lives = [
            (op, backward, bytes),
            (op, backward + 1, bytes),
            (backward - 1, backward + 1, bytes),
            (backward, end + 2, 4 * units * units),
            (backward, end + 2, 4 * units),
        ];
        items.extend(lives.map(|(lower, upper, size)| Item { lower, upper, size, align: 256 }));
    }
    Problem::new(items).unwrap()
}
