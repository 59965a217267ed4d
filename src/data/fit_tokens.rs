//! Where tokens meet the network: the vocabulary, the positions and the classes are compared before the first step.

use super::dataset::Loaded;
use super::error::{Side, quoted};
use super::token_rows::Beyond;
use super::{DataError, Dataset, Place, Request, Samples};
use crate::tensor::Shape;

/// The data set, whose samples are tokens, where the network takes them as they are.
///
/// # Errors
/// Where samples are longer or shorter than the network's, it does not know a token, or its output or loss is for other
/// targets.
pub(super) fn fit_tokens(mut loaded: Loaded, request: &Request) -> Result<Dataset, DataError> {
    let refused = |side: Side, found: String, expected: String, help: &str| {
        Err(DataError::fit(side, &loaded.file, Place::Whole, found, expected, help))
    };
    let ([own], [wanted]) = (&loaded.dataset.inputs[..], &request.inputs[..]) else {
        let found = "samples of one input".to_owned();
        return refused(Side::Input, found, format!("{} inputs", request.inputs.len()), "name one input");
    };
    if own.sample != wanted.shape {
        let help = format!("set input.shape to {}", own.sample);
        let (found, expected) = (format!("samples of {} tokens", own.sample.len()), wanted.shape.to_string());
        return refused(Side::Input, found, format!("{expected} as input.shape says"), &help);
    }
    let Samples::Windows(rows) = &own.values else { return Ok(loaded.dataset) };
    let vocab = wanted.content.vocab().unwrap_or(usize::MAX);
    if let Some(beyond) = rows.beyond(vocab)? {
        return Err(unknown(&loaded.file, &beyond, Side::Vocab, vocab));
    }
    if !request.loss.wants_classes() {
        let help = "use the loss softmax_cross_entropy";
        return refused(Side::Loss, "tokens as targets".into(), "values, as the loss takes them".into(), help);
    }
    let (shape, output) = (rows.target_shape(), &request.output);
    let positions = Shape(output.0[..output.rank().saturating_sub(1)].to_vec());
    let outputs = output.0.last().copied().unwrap_or(1);
    if positions != shape {
        let help = "keep the positions up to the last layer";
        let (found, expected) = (format!("a target at each of {} positions", shape.len()), format!("{output}"));
        return refused(Side::Output, found, format!("{expected}, the network's output"), help);
    }
    if let Some(beyond) = rows.beyond(outputs)? {
        return Err(unknown(&loaded.file, &beyond, Side::Output, outputs));
    }
    let data = &mut loaded.dataset;
    data.preprocessing.classes = data.target.names().to_vec();
    Ok(loaded.dataset)
}

/// The error of a token that the network has no number or no output for.
fn unknown(file: &str, beyond: &Beyond, side: Side, most: usize) -> DataError {
    let Beyond { token, symbol, place, enough } = beyond;
    let (why, help) = match side {
        Side::Vocab => ("as input.vocab says", format!("set input.vocab to {enough} or more")),
        _ => ("as the network's output says", format!("give the last layer {enough} units or more")),
    };
    let found = format!("the token {token} ({})", quoted(symbol));
    DataError::fit(side, file, place.clone(), found, format!("0 to {}, {why}", most.saturating_sub(1)), help)
}
