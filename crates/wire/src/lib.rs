//! Header views and values, checksums, and the layered dissection of a frame
