//! The slots as a C++ header for the kernels.

use super::kind::TABLES;
use std::fmt::Write as _;

/// The tables as a header for the kernels: a type for each, with a constant for each slot. The constants are
/// enumerators, because the compiler would store static members of types in the machine code of every kernel.
#[must_use]
pub(super) fn header() -> String {
    let mut text = String::from(
        "// The slots of every operation, in the order in which kernels see their pointers.\n\
         //\n\
         // Written from the tables of src/ops by `ops::tests::the_header_of_the_kernels_is_up_to_date`; do not edit.\n\
         \n\
         namespace slots {\n",
    );
    for (module, table) in TABLES {
        let mut line = format!("struct {module} {{ enum : int {{");
        for (index, slot) in table.iter().enumerate() {
            let name =
                format!(" {} = {index}{}", slot.name.to_uppercase(), if index + 1 < table.len() { "," } else { "" });
            if line.len() + name.len() > 112 {
                let _ = writeln!(text, "{line}");
                line = String::from("   ");
            }
            line.push_str(&name);
        }
        let _ = writeln!(text, "{line} }}; }};");
    }
    text.push_str("}  // namespace slots\n");
    text
}
