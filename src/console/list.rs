//! A list whose cursor and marks follow the identity of what they stand on, never a row number.

use std::collections::BTreeSet;

use super::filter::Filter;

/// The rows of one view, by identity, in order.
#[derive(Clone, Debug)]
pub struct List<Id> {
    /// The rows that pass the filter, in the order of the screen.
    pub rows: Vec<Id>,
    /// How many there are without the filter.
    pub total: usize,
    /// What the cursor stands on; none only while the list is empty.
    pub cursor: Option<Id>,
    /// Where the cursor was last.
    pub place: usize,
    /// The first visible row.
    pub top: usize,
    /// The marked ones, hidden ones included.
    pub marks: BTreeSet<Id>,
    /// The filter as it was typed.
    pub filter: String,
    /// The filter in force: the last one that was understood.
    pub good: Filter,
    /// What is wrong with the one that was typed.
    pub fault: Option<String>,
    /// The column that the rows are sorted by, and whether the largest comes first; none = the view's own order.
    pub sort: Option<(&'static str, bool)>,
    /// The rows are in another order than that of their identities.
    pub unordered: bool,
    /// Somebody has moved the cursor.
    pub moved: bool,
    /// Where the cursor was when something led away: the object, its row, the first visible row, the filter.
    pub left: Vec<(Option<Id>, usize, usize, String)>,
    /// The cursor's object vanished, and the cursor was put on its neighbour: a verb pressed right then was meant for
    /// the other one.
    pub strayed: bool,
    /// Which state of the world the rows were made from, where that is counted and nothing is filtered or sorted; else 0.
    pub made_of: u64,
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
            good: Filter::default(),
            fault: None,
            sort: None,
            unordered: false,
            moved: false,
            left: Vec::new(),
            strayed: false,
            made_of: 0,
        }
    }
}

impl<Id: Ord + Clone> List<Id> {
    /// Puts new rows in; `exists` tells which marks still stand for something.
    pub fn refresh(&mut self, rows: Vec<Id>, total: usize, exists: impl Fn(&Id) -> bool) {
        self.rows = rows;
        self.total = total;
        self.marks.retain(|id| exists(id));
        match self.cursor.as_ref().map(|id| self.place_of(id)) {
            Some(Some(place)) => self.place = place,
            Some(None) => {
                // hidden by a filter: the first row; gone from the world: the row that took its place
                let gone = self.cursor.as_ref().is_some_and(|id| !exists(id));
                self.select(if gone { self.place } else { 0 });
                self.strayed = gone && self.cursor.is_some();
            }
            None => self.select(0),
        }
    }

    /// The world has changed while the list is not shown: its rows are made when it is.
    pub fn stay_closed(&mut self, total: usize, exists: impl Fn(&Id) -> bool) {
        self.total = total;
        self.marks.retain(exists);
    }

    /// Puts the cursor on a row, or on the last one.
    pub fn select(&mut self, place: usize) {
        self.place = place.min(self.rows.len().saturating_sub(1));
        self.cursor = self.rows.get(self.place).cloned();
        self.strayed = false;
    }

    /// Where an object is shown.
    pub fn place_of(&self, id: &Id) -> Option<usize> {
        if self.unordered { self.rows.iter().position(|row| row == id) } else { self.rows.binary_search(id).ok() }
    }

    /// Puts the cursor on an object, if it is shown.
    pub fn go_to(&mut self, id: &Id) -> bool {
        let found = self.place_of(id);
        if let Some(place) = found {
            self.select(place);
        }
        found.is_some()
    }

    /// Moves the cursor by so many rows.
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

    /// Marks or unmarks what the cursor stands on, and moves on.
    pub fn toggle_mark(&mut self) {
        if let Some(id) = self.cursor.clone() {
            if !self.marks.remove(&id) {
                self.marks.insert(id);
            }
            self.step(1);
        }
    }

    /// Marks all that pass the filter; when they all are, unmarks them.
    pub fn toggle_all(&mut self) {
        if self.rows.iter().all(|id| self.marks.contains(id)) {
            for id in &self.rows {
                self.marks.remove(id);
            }
        } else {
            self.marks.extend(self.rows.iter().cloned());
        }
    }

    /// The marked ones, or else what the cursor stands on.
    pub fn chosen(&self) -> Vec<Id> {
        if self.marks.is_empty() { self.cursor.iter().cloned().collect() } else { self.marks.iter().cloned().collect() }
    }
}

/// What can be done with a list whatever its rows stand for.
pub trait Rows {
    /// How many rows pass the filter, and how many there are without it.
    fn counts(&self) -> (usize, usize);
    /// How many are marked.
    fn marked(&self) -> usize;
    /// How many marked ones the filter hides.
    fn hidden_marks(&self) -> usize;
    /// The filter in force.
    fn filter(&self) -> &str;
    /// Another filter for a view with these columns; the rows are made anew by whoever sets it. One that cannot be
    /// understood leaves the last good one in force.
    fn set_filter(&mut self, text: &str, columns: &'static [&'static str]);
    /// What is wrong with the filter.
    fn fault(&self) -> Option<&str>;
    /// The column that it is sorted by, and whether the largest comes first.
    fn sort(&self) -> Option<(&'static str, bool)>;
    /// Another order; the rows are made anew by whoever sets it.
    fn set_sort(&mut self, by: Option<(&'static str, bool)>);
    /// Rows above the first visible one.
    fn above(&self) -> usize;
    /// Moves the cursor by so many rows.
    fn go(&mut self, by: isize);
    /// Puts the cursor on a visible row, counted from the first one; false where there is none.
    fn point(&mut self, visible: usize) -> bool;
    /// Scrolls so that the cursor is among `height` visible rows.
    fn show_cursor(&mut self, height: usize);
    /// Marks or unmarks the row under the cursor.
    fn mark(&mut self);
    /// Marks all that pass the filter; when they all are, unmarks them.
    fn mark_all(&mut self);
    /// Forgets all marks.
    fn unmark(&mut self);
    /// Remembers where the cursor is.
    fn leave(&mut self);
    /// Goes back to where it was when it was left last; the rows are made anew by whoever calls it.
    fn come_back(&mut self, columns: &'static [&'static str]);
    /// Forgets the ways back.
    fn forget(&mut self);
    /// Whether the cursor was moved because what it stood on is gone; asked once.
    fn take_strayed(&mut self) -> bool;
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
    fn set_filter(&mut self, text: &str, columns: &'static [&'static str]) {
        text.clone_into(&mut self.filter);
        self.fault = match Filter::parse(text, columns) {
            Ok(good) => {
                self.good = good;
                None
            }
            Err(why) => Some(why),
        };
    }
    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
    fn sort(&self) -> Option<(&'static str, bool)> {
        self.sort
    }
    fn set_sort(&mut self, by: Option<(&'static str, bool)>) {
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
    fn point(&mut self, visible: usize) -> bool {
        let there = self.top + visible < self.rows.len();
        if there {
            self.moved = true;
            self.select(self.top + visible);
        }
        there
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
        self.left.push((self.cursor.clone(), self.place, self.top, self.filter.clone()));
    }
    fn come_back(&mut self, columns: &'static [&'static str]) {
        let Some((cursor, place, top, filter)) = self.left.pop() else { return };
        if filter != self.filter {
            self.set_filter(&filter, columns);
        }
        (self.cursor, self.place, self.top) = (cursor, place, top);
    }
    fn forget(&mut self) {
        self.left.clear();
    }
    fn take_strayed(&mut self) -> bool {
        std::mem::take(&mut self.strayed)
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
    fn the_cursor_follows_its_object_when_rows_before_it_vanish() {
        let mut list = list(&[1, 2, 3, 4]);
        list.step(2);
        put(&mut list, &[2, 3, 4]);
        assert_eq!((list.cursor, list.place), (Some(3), 1));
    }

    #[test]
    fn when_its_object_vanishes_the_cursor_goes_to_the_neighbour_and_remembers_that_nobody_chose_it() {
        let mut list = list(&[1, 2, 3]);
        list.step(1);
        put(&mut list, &[1, 3]);
        assert_eq!((list.cursor, list.strayed), (Some(3), true));
        put(&mut list, &[1]);
        assert_eq!((list.cursor, list.strayed), (Some(1), true), "there is no later row: the last one");
        put(&mut list, &[0, 1]);
        assert_eq!((list.cursor, list.strayed), (Some(1), true), "other news change nothing");
        list.step(-1);
        assert_eq!((list.cursor, list.strayed), (Some(0), false));
        put(&mut list, &[]);
        assert_eq!((list.cursor, list.strayed), (None, false));
    }

    #[test]
    fn marks_of_vanished_objects_go_and_the_others_stay() {
        let mut list = list(&[1, 2, 3]);
        list.toggle_mark();
        list.toggle_mark();
        put(&mut list, &[2, 3, 9]);
        assert_eq!(list.chosen(), vec![2]);
    }

    #[test]
    fn the_window_holds_the_cursor() {
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
