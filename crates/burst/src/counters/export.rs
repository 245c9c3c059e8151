//! Counters of the export and the delivery of flow records, after the rows passed in.

macro_rules! export_rows {
    ($($before:tt)*) => {
        switch_rows! {
            $($before)*

            /// Records handed to the exporter.
            ExportReceived = Export, Received, "received";
            /// Records written to files, to the reader of a stream, or to a spool.
            Exported = Export, Delivered, "delivered";
            /// Records not written because writing failed, for example because the disk was full.
            ExportFailed = Export, Lost, "export_failed";
            /// Records not written because the reader of the pipe had closed it.
            ExportUnread = Export, Lost, "reader_gone";
            /// Records not exported because the exporter panicked (a bug).
            ExportDied = Export, Lost, "exporter_panicked";
            /// Records dropped because the collector was unreachable: its queue was full, or the run ended.
            ExportUnreachable = Export, Lost, "collector_unreachable";
            /// Data records sent to a collector; a bidirectional flow takes two, unless one record holds both directions.
            ExportRecords = Export, Note, "data_records";
            /// Messages sent to a collector, including templates and statistics.
            ExportMessages = Export, Note, "messages";
            /// Times a collector became unreachable: the connection ended, or its host reported a closed port.
            ExportOutages = Export, Note, "outages";
            /// Flows exported to NetFlow v9 with only the absolute times (elements 152 and 153), because the clock of elements 21 and 22 cannot represent them; collectors that read only that clock have no times for them.
            ExportAbsolute = Export, Note, "times_beyond_clock";
            /// Files completely written.
            ExportFiles = Export, Note, "files";
            /// Records dropped because the spool was full and nothing in it could be evicted.
            ExportNoRoom = Export, Lost, "no_room";
            /// Time that metering waited for room in the spool, in milliseconds.
            ExportWaitedMs = Export, Note, "waited_ms";

            /// Records added to the spool, including those that an earlier run left there.
            DeliverReceived = Deliver, Received, "received";
            /// Records that the broker or the database acknowledged.
            DeliverAcknowledged = Deliver, Delivered, "acknowledged";
            /// Records still in the spool at the end; the next run sends them.
            DeliverWaiting = Deliver, Refused, "waiting";
            /// Records evicted from the full spool, oldest first, in favour of newer ones.
            SpoolDropped = Deliver, Lost, "spool_dropped";
            /// Records of batches that the receiver rejected permanently; they are set aside in files that end in .refused.
            DeliverRefused = Deliver, Lost, "refused_by_store";
            /// Records of batches whose files in the spool were damaged or missing.
            SpoolDamaged = Deliver, Lost, "spool_damaged";
            /// Records that an earlier run left in the spool.
            DeliverResumed = Deliver, Note, "resumed";
            /// Batches acknowledged.
            DeliverBatches = Deliver, Note, "batches";
            /// Times a batch was sent that may have arrived before; the receiver detects the duplicate.
            DeliverResent = Deliver, Note, "resent";
            /// Records that the receiver may hold twice because it no longer had the state to detect a duplicate.
            MaybeDuplicated = Deliver, Note, "maybe_duplicated";
            /// Times the receiver became unreachable or rejected batches temporarily.
            DeliverOutages = Deliver, Note, "outages";
            /// Batch files set aside in the spool at the end, by this run and earlier ones: .refused, .damaged, .unclaimed.
            DeliverAside = Deliver, Note, "set_aside";
            /// Set-aside files deleted, oldest first, because they exceeded a tenth of the spool limit.
            DeliverAsideDropped = Deliver, Note, "set_aside_dropped";
            /// Age of the oldest waiting batch, in milliseconds.
            DeliverLagMs = Deliver, Note, "lag_ms";
        }
    };
}
