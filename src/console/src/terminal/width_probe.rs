//! Probe of the width of block symbols. Terminals with East Asian settings draw them two cells wide, which breaks every
//! line; such a terminal gets ASCII.
//!
//! The console prints a block in the corner, asks for the cursor's position (CSI 6n), and erases the block. The answer
//! arrives among the keys, and crossterm takes it out of them; keys that are typed meanwhile stay in its queue. Nothing
//! waits for the answer but the keys, for at most [`TIMEOUT`]: a terminal that does not answer gets the symbols.

use std::{io, thread, time::Duration};

use crossterm::event::EventStream;
use tokio::sync::oneshot;

/// Block at the top left, query of the position behind it, and an empty line.
pub(super) const QUERY: &str = "\u{1b}[H\u{2588}\u{1b}[6n\u{1b}[H\u{1b}[K";
/// Longest wait for the answer.
const TIMEOUT: Duration = Duration::from_millis(150);

/// Waits for the answer to [`QUERY`]. `input` is the stream of the keys, which nobody may poll meanwhile; it is returned
/// with `true` if the terminal draws a block wider than one cell.
pub(super) async fn is_wide(input: EventStream) -> (EventStream, bool) {
    let (sender, answer) = oneshot::channel();
    // crossterm sends a second query and blocks; the answer to the first one is in its queue or arrives before
    let reader = thread::Builder::new().name("width probe".to_owned()).spawn(move || {
        // the send fails if the console has quit
        let _ = sender.send(crossterm::cursor::position());
    });
    if reader.is_err() {
        return (input, false);
    }
    let mut answer = answer;
    if let Ok(position) = tokio::time::timeout(TIMEOUT, &mut answer).await {
        (input, position.is_ok_and(|position| starts_beyond_one_cell(&position)))
    } else {
        // the end of the stream wakes the reader, which would keep the keys for two seconds
        drop(input);
        let late = answer.await.is_ok_and(|position| starts_beyond_one_cell(&position));
        // keys that the reader has set aside come before those that follow
        let _ = crossterm::event::poll(Duration::ZERO);
        (EventStream::new(), late)
    }
}

/// Returns true if the cursor stands behind the second column, counted from 0.
fn starts_beyond_one_cell(position: &io::Result<(u16, u16)>) -> bool {
    position.as_ref().is_ok_and(|(column, _)| *column > 1)
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
    fn a_block_of_one_cell_leaves_the_cursor_in_the_second_column() {
        assert!(!starts_beyond_one_cell(&Ok((1, 0))));
        assert!(starts_beyond_one_cell(&Ok((2, 0))));
        assert!(!starts_beyond_one_cell(&Ok((0, 0))), "no width is a terminal that prints nothing");
        assert!(!starts_beyond_one_cell(&Err(io::Error::other("no answer"))));
    }
}
