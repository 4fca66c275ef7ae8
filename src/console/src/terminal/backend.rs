//! ratatui backend that writes each frame at once, between synchronized-update escapes, and writes nothing if nothing
//! changed.
//!
//! ratatui writes escapes even for an empty difference, hides the cursor in every frame, and queries the terminal for
//! the cursor position. Each of these costs time on a slow link or on a terminal that does not answer. This backend
//! suppresses all three. The escapes of the cells are [`cells`].

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard},
};

use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::{
    backend::{Backend, ClearType, CrosstermBackend, WindowSize},
    buffer::Cell,
    layout::{Position, Size},
};

use super::cells;

/// Bytes that a frame rarely exceeds.
const INITIAL_CAPACITY: usize = 256 * 1024;

/// Collects a frame, then writes it at once.
pub struct BufferedBackend<W: Write> {
    inner: CrosstermBackend<SharedBuffer>,
    frame: SharedBuffer,
    out: W,
    size: Size,
    cursor: Option<Position>,
}

/// The bytes of the frame in progress, shared with the inner backend that produces them.
#[derive(Clone)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Does nothing: ratatui flushes in mid-frame, and nothing may leave before the frame ends.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> BufferedBackend<W> {
    /// Creates a backend that writes to `out`. The terminal's cursor must be hidden already.
    pub fn new(out: W, size: Size) -> Self {
        let frame = SharedBuffer(Arc::new(Mutex::new(Vec::with_capacity(INITIAL_CAPACITY))));
        Self { inner: CrosstermBackend::new(frame.clone()), frame, out, size, cursor: None }
    }

    /// Sets the terminal's new size.
    pub fn resize(&mut self, size: Size) {
        self.size = size;
    }

    /// Writes text that is not part of a frame, at once: a title, a bell, or text for the clipboard.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn send(&mut self) -> io::Result<()> {
        let mut frame = self.frame.bytes();
        if frame.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(frame.len() + 16);
        crossterm::queue!(bytes, BeginSynchronizedUpdate)?;
        bytes.append(&mut frame);
        crossterm::queue!(bytes, EndSynchronizedUpdate)?;
        self.out.write_all(&bytes)?;
        self.out.flush()
    }
}

impl<W: Write> Backend for BufferedBackend<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let cells: Vec<(u16, u16, &'a Cell)> = content.collect();
        if cells.is_empty() {
            return Ok(());
        }
        let before = self.cursor.take();
        cells::write(&mut self.frame.bytes(), self.size.width, &cells);
        if before.is_some() {
            self.inner.hide_cursor()?;
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        if self.cursor.take().is_some() { self.inner.hide_cursor() } else { Ok(()) }
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        // ratatui sets the position right after; the cursor is shown there.
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor.unwrap_or_default())
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let position = position.into();
        if self.cursor != Some(position) {
            self.inner.set_cursor_position(position)?;
            self.inner.show_cursor()?;
            self.cursor = Some(position);
        }
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.inner.clear_region(region)
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::new(0, 0) })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, widgets::Paragraph};

    use super::*;

    /// Counts writes and keeps the bytes.
    #[derive(Clone, Default)]
    struct WriteLog(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for WriteLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_frame_is_one_write_and_an_unchanged_frame_is_none() {
        let line = WriteLog::default();
        let mut terminal = Terminal::new(BufferedBackend::new(line.clone(), Size::new(20, 4))).unwrap();
        for text in ["one", "one", "one", "two"] {
            terminal.draw(|f| f.render_widget(Paragraph::new(text), f.area())).unwrap();
        }
        let writes = line.0.lock().unwrap();
        assert_eq!(writes.len(), 2);
        let text = String::from_utf8_lossy(&writes[0]).into_owned();
        assert!(text.starts_with("\u{1b}[?2026h") && text.ends_with("\u{1b}[?2026l"), "{text:?}");
    }

    #[test]
    fn the_cursor_is_shown_once_and_its_position_is_never_queried() {
        let line = WriteLog::default();
        let mut terminal = Terminal::new(BufferedBackend::new(line.clone(), Size::new(20, 4))).unwrap();
        for _ in 0..3 {
            terminal.draw(|f| f.set_cursor_position((1, 1))).unwrap();
        }
        terminal.draw(|_| ()).unwrap();
        let all: Vec<u8> = line.0.lock().unwrap().concat();
        let text = String::from_utf8_lossy(&all).into_owned();
        assert_eq!((text.matches("?25h").count(), text.matches("?25l").count()), (1, 1));
        assert!(!text.contains("[6n"));
    }
}
