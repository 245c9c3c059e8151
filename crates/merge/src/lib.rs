//! Many lanes, one stream in time order
