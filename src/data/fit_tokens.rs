//! Compares tokens with the network: the vocabulary, the positions and the classes are compared before the first step.

use super::dataset::Loaded;
use super::error::{Side, quoted};
use super::request::shape_place;
use super::token_rows::Beyond;
use super::{DataError, Place, Request, Samples, Target};
use crate::model::NamedInput;
use crate::tensor::Shape;

/// Compares samples of tokens with the only input of `request`.
///
/// # Errors
/// If they are longer or shorter than the network's samples, or contain a token that the network does not have.
pub(super) fn fit_token_samples(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    let refused = |side: Side, found: String, expected: String, help: &str| {
        Err(DataError::fit(side, &loaded.file, Place::Whole, found, expected, help))
    };
    let ([own], [wanted]) = (&mut loaded.dataset.inputs[..], &request.inputs[..]) else {
        let found = "samples of one input".to_owned();
        return refused(Side::Input, found, format!("{} inputs", request.inputs.len()), "name one input");
    };
    if own.sample != wanted.shape {
        let place = shape_place(wanted);
        let help = format!("set {place} to {}", own.sample);
        let (found, expected) = (format!("samples of {} tokens", own.sample.len()), wanted.shape.to_string());
        return refused(Side::Input, found, format!("{expected} as {place} says"), &help);
    }
    own.name.clone_from(&wanted.name);
    let vocab = wanted.content.vocab().unwrap_or(usize::MAX);
    let beyond = match &own.values {
        Samples::Windows(rows) => rows.beyond(vocab)?,
        Samples::Tokens(tokens) => {
            let first = tokens.iter().position(|token| usize::try_from(*token).map_or(true, |token| token >= vocab));
            let enough = tokens.iter().copied().max().and_then(|most| usize::try_from(most).ok()).unwrap_or(0) + 1;
            let width = own.sample.len().max(1);
            let tokens = tokens.as_slice();
            let beyond = |at: usize| {
                let token = usize::try_from(tokens[at]).unwrap_or(0);
                (at / width, Beyond { token, symbol: token.to_string(), place: Place::Sample(at / width), enough })
            };
            first.map(beyond).map(|(sample, beyond)| Beyond { place: loaded.place(sample), ..beyond })
        }
        Samples::Real(_) => None,
    };
    beyond.map_or(Ok(()), |beyond| Err(unknown(&loaded.file, &beyond, (Side::Vocab, &vocab_place(wanted)), vocab)))
}

/// The path, in the document, of the vocabulary of an input.
fn vocab_place(input: &NamedInput) -> String {
    shape_place(input).replace(".shape", ".vocab")
}

/// Compares targets of tokens with the network's output.
///
/// # Errors
/// If the network's output or loss is for other targets.
pub(super) fn fit_windows(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    let refused = |side: Side, found: String, expected: String, help: &str| {
        Err(DataError::fit(side, &loaded.file, Place::Whole, found, expected, help))
    };
    let Target::Windows(rows) = &loaded.dataset.target else { return Ok(()) };
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
        return Err(unknown(&loaded.file, &beyond, (Side::Output, ""), outputs));
    }
    let data = &mut loaded.dataset;
    data.preprocessing.classes = data.target.names().to_vec();
    Ok(())
}

/// The error of a token that is beyond the network's vocabulary or outputs.
fn unknown(file: &str, beyond: &Beyond, (side, field): (Side, &str), most: usize) -> DataError {
    let Beyond { token, symbol, place, enough } = beyond;
    let (why, help) = match side {
        Side::Vocab => (format!("as {field} says"), format!("set {field} to {enough} or more")),
        _ => ("as the network's output says".to_owned(), format!("give the last layer {enough} units or more")),
    };
    let found = format!("the token {token} ({})", quoted(symbol));
    DataError::fit(side, file, place.clone(), found, format!("0 to {}, {why}", most.saturating_sub(1)), help)
}
