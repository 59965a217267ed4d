//! Reads and writes placement problems as `id,lower,upper,size` tables.

use std::collections::HashMap;
use std::io::{Read, Write};

use super::problem::{Item, Placement, Problem, ProblemError};

const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

/// A problem from a file: the items in the file's order, each with its id in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub problem: Problem,
    /// The ids in the file, by item.
    pub ids: Vec<String>,
}

/// An error in a file; lines are counted from 1, including the header.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    #[error("the file is empty: expected the header `id,lower,upper,size`")]
    Empty,
    #[error("line {line}: the header lacks the column `{column}`: expected `id,lower,upper,size` in any order")]
    MissingColumn { line: u64, column: &'static str },
    #[error("line {line}: the header names the column `{column}` twice")]
    RepeatedColumn { line: u64, column: &'static str },
    #[error("line {line}: found {found} fields where the header has {expected}")]
    Fields { line: u64, expected: u64, found: u64 },
    #[error("line {line}: `{column}` is `{found}`: expected a whole number from 0 to {}", u64::MAX)]
    NotANumber { line: u64, column: &'static str, found: String },
    #[error("line {line}: `{column}` is negative ({found}): expected a whole number from 0 to {}", u64::MAX)]
    Negative { line: u64, column: &'static str, found: String },
    #[error("line {line}: `{column}` is {found}: expected at most {}", u64::MAX)]
    Overflow { line: u64, column: &'static str, found: String },
    #[error("line {line}: the live range [{lower}, {upper}) is empty: expected lower < upper")]
    EmptyRange { line: u64, lower: u64, upper: u64 },
    #[error("line {line}: the id is empty: expected a name or a number")]
    EmptyId { line: u64 },
    #[error("line {line}: the id `{id}` was used on line {first} already: expected each id once")]
    DuplicateId { line: u64, id: String, first: u64 },
    #[error("line {line}: the sizes up to this one add up to more than {}", u64::MAX)]
    TooLarge { line: u64 },
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error("the file cannot be read as CSV in UTF-8")]
    Read(#[source] ::csv::Error),
}

/// The problem that a file describes; sizes are in bytes, every alignment is 1.
///
/// The header may have its columns in any order, and further columns, which are ignored, so that the output of
/// [`write()`] can be read again.
///
/// # Errors
/// [`CsvError`] names the line, what was found there, and what was expected.
pub fn read(reader: impl Read) -> Result<Table, CsvError> {
    let mut rows =
        ::csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(::csv::Trim::All).from_reader(reader);
    let mut record = ::csv::StringRecord::new();
    if !rows.read_record(&mut record).map_err(CsvError::Read)? {
        return Err(CsvError::Empty);
    }
    let columns = find_columns(&record)?;
    let width = record.len();

    let mut items = Vec::new();
    let mut ids = Vec::new();
    let mut lines = Vec::new();
    let mut seen: HashMap<String, u64> = HashMap::new();
    while rows.read_record(&mut record).map_err(CsvError::Read)? {
        let line = line_of(&record);
        if record.len() != width {
            return Err(CsvError::Fields { line, expected: width as u64, found: record.len() as u64 });
        }
        let [id, lower, upper, size] = columns.map(|column| &record[column]);
        if id.is_empty() {
            return Err(CsvError::EmptyId { line });
        }
        let lower = number(line, "lower", lower)?;
        let upper = number(line, "upper", upper)?;
        let size = number(line, "size", size)?;
        if lower >= upper {
            return Err(CsvError::EmptyRange { line, lower, upper });
        }
        if let Some(first) = seen.insert(id.to_owned(), line) {
            return Err(CsvError::DuplicateId { line, id: id.to_owned(), first });
        }
        ids.push(id.to_owned());
        lines.push(line);
        items.push(Item { lower, upper, size, align: 1 });
    }
    let problem = Problem::new(items).map_err(|error| match error {
        ProblemError::TooLarge { item } => CsvError::TooLarge { line: lines[item.index()] },
        other => CsvError::Problem(other),
    })?;
    Ok(Table { problem, ids })
}

/// Prints `id,lower,upper,size,offset`, in the order of the table.
///
/// # Errors
/// If the writer reports an error.
///
/// # Panics
/// If the placement is not one of this table's problem.
pub fn write(writer: impl Write, table: &Table, placement: &Placement) -> std::io::Result<()> {
    let items = table.problem.items();
    assert_eq!(items.len(), placement.offsets.len(), "a placement lists one offset an item");
    let mut rows = ::csv::Writer::from_writer(writer);
    rows.write_record(["id", "lower", "upper", "size", "offset"]).map_err(std::io::Error::from)?;
    for ((item, id), offset) in items.iter().zip(&table.ids).zip(&placement.offsets) {
        let numbers = [item.lower, item.upper, item.size, *offset].map(|n| n.to_string());
        rows.write_record(std::iter::once(id).chain(&numbers)).map_err(std::io::Error::from)?;
    }
    rows.flush()
}

/// The positions of the four columns in the header.
fn find_columns(header: &::csv::StringRecord) -> Result<[usize; 4], CsvError> {
    let line = line_of(header);
    let mut found = [0; 4];
    for (slot, column) in found.iter_mut().zip(COLUMNS) {
        // Spreadsheets write a byte-order mark before the first name.
        let mut places = header
            .iter()
            .enumerate()
            .filter(|(_, name)| name.trim_start_matches('\u{feff}') == column)
            .map(|(place, _)| place);
        *slot = places.next().ok_or(CsvError::MissingColumn { line, column })?;
        if places.next().is_some() {
            return Err(CsvError::RepeatedColumn { line, column });
        }
    }
    Ok(found)
}

/// One number of a row, or an error with what it is instead.
fn number(line: u64, column: &'static str, text: &str) -> Result<u64, CsvError> {
    let is_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let found = text.to_owned();
    match text.parse() {
        Ok(value) => Ok(value),
        Err(_) if is_digits(text) => Err(CsvError::Overflow { line, column, found }),
        Err(_) if text.strip_prefix('-').is_some_and(is_digits) => Err(CsvError::Negative { line, column, found }),
        Err(_) => Err(CsvError::NotANumber { line, column, found }),
    }
}

/// The line on which a record starts.
fn line_of(record: &::csv::StringRecord) -> u64 {
    record.position().map_or(1, ::csv::Position::line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let table = read("size,id,upper,lower\n8,a,4,0\n16,\"b,c\",9,2\n".as_bytes()).unwrap();
        assert_eq!(table.ids, ["a", "b,c"]);
        let placement = Placement::new(&table.problem, vec![16, 0]);
        let mut text = Vec::new();
        write(&mut text, &table, &placement).unwrap();
        assert_eq!(
            String::from_utf8(text.clone()).unwrap(),
            "id,lower,upper,size,offset\na,0,4,8,16\n\"b,c\",2,9,16,0\n"
        );
        assert_eq!(read(text.as_slice()).unwrap(), table);
    }

    #[test]
    fn blanks_a_byte_order_mark_and_windows_line_ends_are_harmless() {
        let table = read("\u{feff}id, lower, upper, size\r\n0, 1, 2, 3\r\n\r\n".as_bytes()).unwrap();
        assert_eq!(table.problem.items()[0].size, 3);
    }

    #[test]
    fn a_header_alone_is_an_empty_problem() {
        assert!(read("id,lower,upper,size\n".as_bytes()).unwrap().ids.is_empty());
    }

    #[test]
    fn each_error_names_its_line_and_what_was_expected() {
        let head = "id,lower,upper,size\n0,0,1,1\n";
        let row = |row: &str| message(&format!("{head}{row}\n"));
        assert!(message("").starts_with("the file is empty: expected the header"));
        assert!(message("0,0,1,1\n").starts_with("line 1: the header lacks the column `id`"));
        assert!(message("id,id,lower,upper,size\n").starts_with("line 1: the header names the column `id` twice"));
        assert_eq!(row("1,2,3"), "line 3: found 3 fields where the header has 4");
        assert!(row("1,2,x,4").starts_with("line 3: `upper` is `x`: expected a whole number"));
        assert!(row("1,2,3.5,4").starts_with("line 3: `upper` is `3.5`: expected"));
        assert!(row("1,2,,4").starts_with("line 3: `upper` is ``: expected"));
        assert!(row("1,-2,3,4").starts_with("line 3: `lower` is negative (-2)"));
        assert!(row("1,2,3,18446744073709551616").starts_with("line 3: `size` is 1844"));
        assert!(row("1,3,3,4").starts_with("line 3: the live range [3, 3) is empty"));
        assert!(row(",2,3,4").starts_with("line 3: the id is empty"));
        assert_eq!(row("0,2,3,4"), "line 3: the id `0` was used on line 2 already: expected each id once");
        assert!(row("1,0,2,18446744073709551615").starts_with("line 3: the sizes up to this one"));
        assert!(matches!(read(&b"id\xff,"[..]).unwrap_err(), CsvError::Read(_)));
    }
}
