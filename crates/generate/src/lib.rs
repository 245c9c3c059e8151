//! What to send and when: replay, templates, schedules
