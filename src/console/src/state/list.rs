//! List whose cursor and marks follow the identity of objects, never a row number.

use std::collections::BTreeSet;

use super::{column_id::ColumnId, filter::Filter};

/// Rows of one view, by identity, in order.
#[derive(Clone, Debug)]
pub struct List<Id> {
    /// The rows that pass the filter, in the order on the screen.
    pub rows: Vec<Id>,
    /// Number of rows without the filter.
    pub total: usize,
    /// The object under the cursor. `None` while the list is empty, or while a pane shows an object without a row.
    pub cursor: Option<Id>,
    /// The last row of the cursor.
    pub place: usize,
    /// The first visible row.
    pub top: usize,
    /// The marked objects, including hidden ones.
    pub marks: BTreeSet<Id>,
    /// The filter as it was typed.
    pub filter: String,
    /// The active filter: the last valid one.
    pub active_filter: Filter,
    /// The error of the typed filter.
    pub filter_error: Option<String>,
    /// The sort column, and whether the largest value comes first. `None` = the view's own order.
    pub sort: Option<(ColumnId, bool)>,
    /// Whether the rows are not ordered by identity.
    pub unordered: bool,
    /// Whether the operator has moved the cursor.
    pub moved: bool,
    /// Cursor positions from before jumps: the object, its row, the first visible row and the filter.
    pub saved_positions: Vec<(Option<Id>, usize, usize, String)>,
    /// Whether the cursor's object disappeared and the cursor moved to its neighbour. A verb pressed right then was
    /// meant for the old object.
    pub cursor_displaced: bool,
    /// Counter of the state that the rows were made from, if there is one and nothing is filtered or sorted; else 0.
    pub source_generation: u64,
}

impl<Id> Default for List<Id> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            total: 0,
            cursor: None,
            place: 0,
            top: 0,
            marks: BTreeSet::new(),
            filter: String::new(),
            active_filter: Filter::default(),
            filter_error: None,
            sort: None,
            unordered: false,
            moved: false,
            saved_positions: Vec::new(),
            cursor_displaced: false,
            source_generation: 0,
        }
    }
}

impl<Id: Ord + Clone> List<Id> {
    /// Sets new rows. `exists` decides which marks are kept.
    pub fn refresh(&mut self, rows: Vec<Id>, total: usize, exists: impl Fn(&Id) -> bool) {
        self.rows = rows;
        self.total = total;
        self.marks.retain(|id| exists(id));
        match self.cursor.as_ref().map(|id| self.place_of(id)) {
            Some(Some(place)) => self.place = place,
            Some(None) => {
                // If a filter hides the object, the cursor goes to the first row. If the object is gone, the cursor
                // goes to the row in its place.
                let is_deleted = self.cursor.as_ref().is_some_and(|id| !exists(id));
                self.select(if is_deleted { self.place } else { 0 });
                self.cursor_displaced = is_deleted && self.cursor.is_some();
            }
            None => self.select(self.place),
        }
    }

    /// Takes a new state while the list is not shown. Its rows are made when it is shown.
    pub fn refresh_hidden(&mut self, total: usize, exists: impl Fn(&Id) -> bool) {
        self.total = total;
        self.marks.retain(exists);
    }

    /// Moves the cursor to a row, or to the last row.
    pub fn select(&mut self, place: usize) {
        self.place = place.min(self.rows.len().saturating_sub(1));
        self.cursor = self.rows.get(self.place).cloned();
        self.cursor_displaced = false;
    }

    /// Returns the row of an object.
    pub fn place_of(&self, id: &Id) -> Option<usize> {
        if self.unordered { self.rows.iter().position(|row| row == id) } else { self.rows.binary_search(id).ok() }
    }

    /// Moves the cursor to an object. Returns false if it is not shown.
    pub fn select_id(&mut self, id: &Id) -> bool {
        let found = self.place_of(id);
        if let Some(place) = found {
            self.select(place);
        }
        found.is_some()
    }

    /// Moves the cursor by a number of rows.
    pub fn step(&mut self, by: isize) {
        let from = self.place.min(self.rows.len().saturating_sub(1));
        self.select(from.saturating_add_signed(by));
    }

    /// Scrolls so that the cursor is among `height` visible rows.
    pub fn reveal(&mut self, height: usize) {
        let last = self.rows.len().saturating_sub(height);
        self.top = self.top.min(last).min(self.place).max((self.place + 1).saturating_sub(height));
    }

    /// The visible rows.
    pub fn window(&self, height: usize) -> &[Id] {
        let end = (self.top + height).min(self.rows.len());
        self.rows.get(self.top.min(end)..end).unwrap_or_default()
    }

    /// Marks or unmarks the object under the cursor, and moves the cursor down.
    pub fn toggle_mark(&mut self) {
        if let Some(id) = self.cursor.clone() {
            if !self.marks.remove(&id) {
                self.marks.insert(id);
            }
            self.step(1);
        }
    }

    /// Marks all rows that pass the filter, or unmarks them if all are marked.
    pub fn toggle_all(&mut self) {
        if self.rows.iter().all(|id| self.marks.contains(id)) {
            for id in &self.rows {
                self.marks.remove(id);
            }
        } else {
            self.marks.extend(self.rows.iter().cloned());
        }
    }

    /// Returns the marked objects, else the object under the cursor.
    pub fn chosen(&self) -> Vec<Id> {
        if self.marks.is_empty() { self.cursor.iter().cloned().collect() } else { self.marks.iter().cloned().collect() }
    }
}

/// Operations of a list that do not depend on the type of its rows.
pub trait Rows {
    /// Returns the number of rows that pass the filter, and the number without the filter.
    fn counts(&self) -> (usize, usize);
    /// Returns the number of marked objects.
    fn marked(&self) -> usize;
    /// Returns the number of marked objects that the filter hides.
    fn hidden_marks(&self) -> usize;
    /// Returns the filter as it was typed.
    fn filter(&self) -> &str;
    /// Sets the filter for a view with these columns. The caller must recompute the rows. An invalid filter leaves the
    /// last valid one in force.
    fn set_filter(&mut self, text: &str, columns: &[ColumnId]);
    /// Returns the error of the typed filter.
    fn filter_error(&self) -> Option<&str>;
    /// Returns the sort column, and whether the largest value comes first.
    fn sort(&self) -> Option<(ColumnId, bool)>;
    /// Sets the order. The caller must recompute the rows.
    fn set_sort(&mut self, by: Option<(ColumnId, bool)>);
    /// Returns the number of rows above the first visible one.
    fn above(&self) -> usize;
    /// Moves the cursor by a number of rows.
    fn go(&mut self, by: isize);
    /// Reports whether there is a row that many rows from the cursor, or a hidden cursor that a move shows again.
    fn has_neighbour(&self, by: isize) -> bool;
    /// Moves the cursor to a visible row, counted from the first visible one. Returns false if there is none.
    fn point(&mut self, visible: usize) -> bool;
    /// Scrolls so that the cursor is among `height` visible rows.
    fn show_cursor(&mut self, height: usize);
    /// Marks or unmarks the row under the cursor.
    fn mark(&mut self);
    /// Marks all rows that pass the filter, or unmarks them if all are marked.
    fn mark_all(&mut self);
    /// Removes all marks.
    fn unmark(&mut self);
    /// Saves the cursor position.
    fn leave(&mut self);
    /// Restores the last saved cursor position. The caller must recompute the rows.
    fn restore_position(&mut self, columns: &[ColumnId]);
    /// Drops the saved cursor positions.
    fn forget(&mut self);
    /// Removes the cursor, but not its row: the open pane shows an object that has no row.
    fn hide_cursor(&mut self);
    /// Puts a hidden cursor back on its row.
    fn show_hidden_cursor(&mut self);
    /// Returns whether the cursor moved because its object disappeared, and clears that flag.
    fn take_cursor_displaced(&mut self) -> bool;
}

impl<Id: Ord + Clone> Rows for List<Id> {
    fn counts(&self) -> (usize, usize) {
        (self.rows.len(), self.total)
    }
    fn marked(&self) -> usize {
        self.marks.len()
    }
    fn hidden_marks(&self) -> usize {
        if self.marks.is_empty() || self.rows.len() == self.total {
            return 0;
        }
        self.marks.len() - self.rows.iter().filter(|id| self.marks.contains(*id)).count()
    }
    fn filter(&self) -> &str {
        &self.filter
    }
    fn set_filter(&mut self, text: &str, columns: &[ColumnId]) {
        text.clone_into(&mut self.filter);
        self.filter_error = match Filter::parse(text, columns) {
            Ok(active_filter) => {
                self.active_filter = active_filter;
                None
            }
            Err(why) => Some(why),
        };
    }
    fn filter_error(&self) -> Option<&str> {
        self.filter_error.as_deref()
    }
    fn sort(&self) -> Option<(ColumnId, bool)> {
        self.sort
    }
    fn set_sort(&mut self, by: Option<(ColumnId, bool)>) {
        self.sort = by;
        self.unordered = by.is_some();
    }
    fn above(&self) -> usize {
        self.top
    }
    fn go(&mut self, by: isize) {
        self.moved = true;
        self.step(by);
    }
    fn has_neighbour(&self, by: isize) -> bool {
        let is_row = |place: usize| place < self.rows.len();
        match self.cursor {
            Some(_) => self.place.checked_add_signed(by).is_some_and(is_row),
            None => !self.rows.is_empty(),
        }
    }
    fn point(&mut self, visible: usize) -> bool {
        let in_range = self.top + visible < self.rows.len();
        if in_range {
            self.moved = true;
            self.select(self.top + visible);
        }
        in_range
    }
    fn show_cursor(&mut self, height: usize) {
        self.reveal(height);
    }
    fn mark(&mut self) {
        self.moved = true;
        self.toggle_mark();
    }
    fn mark_all(&mut self) {
        self.toggle_all();
    }
    fn unmark(&mut self) {
        self.marks.clear();
    }
    fn leave(&mut self) {
        self.saved_positions.push((self.cursor.clone(), self.place, self.top, self.filter.clone()));
    }
    fn restore_position(&mut self, columns: &[ColumnId]) {
        let Some((cursor, place, top, filter)) = self.saved_positions.pop() else { return };
        if filter != self.filter {
            self.set_filter(&filter, columns);
        }
        (self.cursor, self.place, self.top) = (cursor, place, top);
    }
    fn forget(&mut self) {
        self.saved_positions.clear();
    }
    fn hide_cursor(&mut self) {
        self.cursor = None;
    }
    fn show_hidden_cursor(&mut self) {
        if self.cursor.is_none() {
            self.select(self.place);
            // A verb pressed right then was meant for the pane's object.
            self.cursor_displaced = self.cursor.is_some();
        }
    }
    fn take_cursor_displaced(&mut self) -> bool {
        std::mem::take(&mut self.cursor_displaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rows: &[u32]) -> List<u32> {
        let mut list = List::default();
        put(&mut list, rows);
        list
    }

    fn put(list: &mut List<u32>, rows: &[u32]) {
        let all = rows.to_vec();
        list.refresh(rows.to_vec(), rows.len(), |id| all.contains(id));
    }

    #[test]
    fn the_cursor_follows_its_object_when_earlier_rows_are_deleted() {
        let mut list = list(&[1, 2, 3, 4]);
        list.step(2);
        put(&mut list, &[2, 3, 4]);
        assert_eq!((list.cursor, list.place), (Some(3), 1));
    }

    #[test]
    fn a_cursor_whose_object_is_deleted_moves_to_the_neighbour_and_is_marked_displaced() {
        let mut list = list(&[1, 2, 3]);
        list.step(1);
        put(&mut list, &[1, 3]);
        assert_eq!((list.cursor, list.cursor_displaced), (Some(3), true));
        put(&mut list, &[1]);
        assert_eq!((list.cursor, list.cursor_displaced), (Some(1), true), "without a later row: the last row");
        put(&mut list, &[0, 1]);
        assert_eq!((list.cursor, list.cursor_displaced), (Some(1), true), "an unrelated update changes nothing");
        list.step(-1);
        assert_eq!((list.cursor, list.cursor_displaced), (Some(0), false));
        put(&mut list, &[]);
        assert_eq!((list.cursor, list.cursor_displaced), (None, false));
    }

    #[test]
    fn marks_of_deleted_objects_are_removed_and_others_are_kept() {
        let mut list = list(&[1, 2, 3]);
        list.toggle_mark();
        list.toggle_mark();
        put(&mut list, &[2, 3, 9]);
        assert_eq!(list.chosen(), vec![2]);
    }

    #[test]
    fn the_visible_window_contains_the_cursor() {
        let mut list = list(&(0..100).collect::<Vec<_>>());
        list.step(50);
        list.reveal(10);
        assert_eq!(list.window(10), (41..=50).collect::<Vec<_>>());
        list.step(-50);
        list.reveal(10);
        assert_eq!(list.window(10), (0..10).collect::<Vec<_>>());
        put(&mut list, &[1]);
        list.reveal(10);
        assert_eq!(list.window(10), [1]);
    }
}
