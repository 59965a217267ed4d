//! What is said beside the name of a kernel about the sizes that it is compiled for.

use crate::select::cuda::CompiledFor;
use crate::studio::view_models::format;
use crate::studio::view_models::measured::Measured;
use crate::train::KernelChange;

/// A mark beside the name of a kernel that was planned for any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMark {
    /// A few words, and how much longer the kernel that runs takes than the other kind: `any size +1.3 µs`.
    pub text: String,
    /// What they mean.
    pub about: String,
}

impl KernelMark {
    /// The mark of operation `op`, whose kernel is compiled for `sizes`; `None` if it has no mark.
    #[must_use]
    pub fn of(
        op: usize,
        sizes: Option<CompiledFor>,
        change: KernelChange,
        measured: Option<&Measured>,
    ) -> Option<Self> {
        if sizes != Some(CompiledFor::AnySize) {
            return None;
        }
        let (word, about) = match change {
            KernelChange::Keeps => (
                CompiledFor::AnySize.text(),
                "This kernel works for any size, so that it need not be compiled for this network.",
            ),
            KernelChange::Waits => (
                "waiting",
                "This kernel works for any size. One for these sizes is compiled as soon as the run trains and at \
                 least five seconds of it are left.",
            ),
            KernelChange::Compiles => (
                "compiling",
                "Steps run a kernel that works for any size. One for these sizes is being compiled, and is taken over \
                 between two steps, with the same results.",
            ),
            KernelChange::Changed => (
                CompiledFor::ItsSizes.text(),
                "The run started with a kernel that works for any size. Steps now run one that is compiled for these \
                 sizes, with the same results.",
            ),
        };
        let times = measured.and_then(|m| Some((m.op_us(op)?, m.own_sizes_us(op)?)));
        let Some((any, own)) = times else {
            let how = "Measure operations shows what the difference is worth.";
            return Some(Self { text: word.into(), about: format!("{about} {how}") });
        };
        let times = [any, own].map(format::micros);
        let about = format!("{about}\n\nMeasured: {} for any size, {} for these sizes.", times[0], times[1]);
        let more = if change == KernelChange::Changed { own - any } else { any - own };
        let sign = if more > 0.0 { '+' } else { '−' };
        let worth =
            if more.abs() < 0.05 { "±0 µs".to_owned() } else { format!("{sign}{}", format::micros(more.abs())) };
        Some(Self { text: format!("{word} {worth}"), about })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::OpTimes;

    fn mark(change: KernelChange, times: Option<[f64; 2]>) -> KernelMark {
        let measured = times.map(|[any, own]| {
            let times = OpTimes {
                op_us: vec![9.0, any],
                own_sizes_us: Some(vec![9.0, own]),
                floors: Vec::new(),
                replay_us: 20.0,
                ceilings: None,
                rounds: 3,
            };
            Measured::new(1, times)
        });
        KernelMark::of(1, Some(CompiledFor::AnySize), change, measured.as_ref()).unwrap()
    }

    #[test]
    fn the_mark_of_a_kernel_follows_the_run_and_says_what_its_sizes_are_worth() {
        let texts = [KernelChange::Keeps, KernelChange::Waits, KernelChange::Compiles, KernelChange::Changed]
            .map(|change| mark(change, None).text);
        assert_eq!(texts, ["any size", "waiting", "compiling", "its sizes"]);
        let slower = mark(KernelChange::Compiles, Some([3.4, 2.1]));
        assert_eq!(slower.text, "compiling +1.3 µs");
        assert!(slower.about.ends_with("Measured: 3.4 µs for any size, 2.1 µs for these sizes."));
        assert_eq!(mark(KernelChange::Keeps, Some([2.0, 2.5])).text, "any size −0.5 µs");
        assert_eq!(mark(KernelChange::Changed, Some([3.4, 2.1])).text, "its sizes −1.3 µs");
        assert_eq!(mark(KernelChange::Keeps, Some([2.0, 2.01])).text, "any size ±0 µs");
        for sizes in [None, Some(CompiledFor::Library), Some(CompiledFor::ItsSizes)] {
            assert_eq!(KernelMark::of(0, sizes, KernelChange::Compiles, None), None);
        }
    }
}
