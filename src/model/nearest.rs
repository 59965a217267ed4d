//! Finds the name that was probably meant by a misspelt one.

/// Names that differ by more edits than this are different names.
const MOST_EDITS: usize = 2;

/// The name that is nearest to `given`, if one differs by at most two single-letter edits, ignoring case.
#[must_use]
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given: Vec<char> = given.to_lowercase().chars().collect();
    let most = MOST_EDITS.min(given.len() / 2);
    let edits = |name: &'a str| {
        let letters: Vec<char> = name.to_lowercase().chars().collect();
        // If the lengths differ too much, the edits need not be counted.
        (letters.len().abs_diff(given.len()) <= most).then(|| (edits(&given, &letters), name))
    };
    let near = names.into_iter().filter_map(edits).filter(|(count, _)| *count <= most);
    near.min_by_key(|(count, _)| *count).map(|(_, name)| name)
}

/// `did you mean "xor"? `, as a prefix for further help; empty if no name is near.
#[must_use]
pub fn did_you_mean<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, names).map_or_else(String::new, |name| format!("did you mean \"{name}\"? "))
}

/// The number of letters to insert, remove or replace that turns one text into another (Levenshtein's distance).
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = if ca == cb { diagonal } else { 1 + diagonal.min(row[j]).min(row[j + 1]) };
            diagonal = row[j + 1];
            row[j + 1] = cost;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_within_two_edits_is_found() {
        let names = ["digits-mlp", "digits-cnn", "xor", "moons"];
        for (given, wanted) in [
            ("digits-mpl", Some("digits-mlp")),
            ("Digits-CNN", Some("digits-cnn")),
            ("digit-cnn", Some("digits-cnn")),
            ("moon", Some("moons")),
            ("xro", None),
            ("xo", Some("xor")),
            ("mnist", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(given, names), wanted, "{given}");
        }
        assert_eq!(did_you_mean("moonss", names), "did you mean \"moons\"? ");
        assert_eq!(did_you_mean("spirals", names), "");
    }
}
