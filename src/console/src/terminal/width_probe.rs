//! Probe of the width of symbols. Terminals with East Asian settings draw them two cells wide, which breaks every line;
//! such a terminal gets ASCII.
//!
//! The console prints one symbol of each kind in the corner, because terminals decide by kind: a block, a circle, a check
//! mark. It asks for the cursor's position (CSI 6n), and erases them. The answer arrives among the keys, and crossterm
//! takes it out of them; keys that are typed meanwhile stay in its queue, in their order. Nothing waits for the answer but
//! the keys: for one round trip, or for the two seconds after which crossterm gives up on a terminal that does not answer.
//! That terminal gets the symbols.
//!
//! The wait cannot be cut short: crossterm delivers the first key after an interrupted wait before those that it has set
//! aside, so that `:columns` became `:colums` after an `n` that acted on its own.

use std::{io, thread};

use crossterm::event::EventStream;
use tokio::sync::oneshot;

/// Symbols at the top left, query of the position behind them, and an empty line.
pub(super) const QUERY: &str = "\u{1b}[H\u{2588}\u{25cf}\u{2713}\u{1b}[6n\u{1b}[H\u{1b}[K";
/// Number of symbols in [`QUERY`].
const SYMBOLS: u16 = 3;

/// Waits for the answer to [`QUERY`]. `input` is the stream of the keys, which nobody may poll meanwhile; it is returned
/// with `true` if the terminal draws a symbol wider than one cell.
pub(super) async fn is_wide(input: EventStream) -> (EventStream, bool) {
    let (sender, answer) = oneshot::channel();
    // crossterm sends a second query and blocks; the answer to the first one is in its queue or arrives before
    let reader = thread::Builder::new().name("width probe".to_owned()).spawn(move || {
        // the send fails if the console has quit
        let _ = sender.send(crossterm::cursor::position());
    });
    let is_wide = reader.is_ok() && answer.await.is_ok_and(|position| is_beyond_the_symbols(&position));
    (input, is_wide)
}

/// Returns true if the symbols took more columns than there are symbols. Columns count from 0.
fn is_beyond_the_symbols(position: &io::Result<(u16, u16)>) -> bool {
    position.as_ref().is_ok_and(|(column, _)| *column > SYMBOLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints the result and then the keys, up to `q`. Run it alone on a terminal: `--ignored --nocapture`.
    #[tokio::test]
    #[ignore = "needs a terminal"]
    async fn the_probe_on_this_terminal() {
        use futures::StreamExt;
        crossterm::terminal::enable_raw_mode().unwrap();
        print!("{QUERY}");
        io::Write::flush(&mut io::stdout()).unwrap();
        let began = std::time::Instant::now();
        let (mut input, is_wide) = is_wide(EventStream::new()).await;
        println!("wide={is_wide} after {:?}\r", began.elapsed());
        while let Some(Ok(event)) = input.next().await {
            println!("{event:?}\r");
            if event == crossterm::event::Event::Key(crossterm::event::KeyCode::Char('q').into()) {
                break;
            }
        }
        crossterm::terminal::disable_raw_mode().unwrap();
    }

    #[test]
    fn symbols_of_one_cell_move_the_cursor_by_their_number() {
        assert!(!is_beyond_the_symbols(&Ok((3, 0))));
        assert!(is_beyond_the_symbols(&Ok((4, 0))), "one of them is wide, for example the circle alone");
        assert!(is_beyond_the_symbols(&Ok((6, 0))));
        assert!(!is_beyond_the_symbols(&Ok((0, 0))), "no width is a terminal that prints nothing");
        assert!(!is_beyond_the_symbols(&Err(io::Error::other("no answer"))));
    }
}
