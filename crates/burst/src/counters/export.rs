//! The rows of where flow records go, behind those in front of them.

macro_rules! export_rows {
    ($($before:tt)*) => {
        switch_rows! {
            $($before)*

            /// Records handed to the exporter.
            ExportReceived = Export, Received, "received";
            /// Records in files, handed to whoever reads a stream, or in a spool.
            Exported = Export, Delivered, "delivered";
            /// Records not written because writing failed, for example as the disk was full.
            ExportFailed = Export, Lost, "export_failed";
            /// Records that nobody reads, as the reader of the pipe had gone.
            ExportUnread = Export, Lost, "reader_gone";
            /// Records for an exporter that had died of a bug of this program.
            ExportDied = Export, Lost, "exporter_died";
            /// Records for a collector that was away, beyond what could wait for it.
            ExportAway = Export, Lost, "collector_away";
            /// Data records sent to a collector: two of a flow with both directions, unless one record has both.
            ExportRecords = Export, Note, "data_records";
            /// Messages sent to a collector, those of templates and statistics among them.
            ExportMessages = Export, Note, "messages";
            /// Times a collector went away: the connection ended, or its host said that nobody listens.
            ExportOutages = Export, Note, "outages";
            /// Flows whose times NetFlow v9 has as elements 152 and 153 alone, as its clock (21, 22) cannot tell them: a collector that reads that clock alone has no times for them.
            ExportAbsolute = Export, Note, "times_beyond_clock";
            /// Files that are complete.
            ExportFiles = Export, Note, "files";
            /// Records for which there was no room in the spool while nothing in it could give way.
            ExportNoRoom = Export, Lost, "no_room";
            /// For how long metering could wait for room in the spool, in milliseconds.
            ExportWaitedMs = Export, Note, "waited_ms";

            /// Records that came into the spool, and those that an earlier run had left there.
            DeliverReceived = Deliver, Received, "received";
            /// Records that the broker or the database has acknowledged.
            DeliverAcknowledged = Deliver, Delivered, "acknowledged";
            /// Records that are in the spool in the end: the next run sends them.
            DeliverWaiting = Deliver, Refused, "waiting";
            /// Records that gave way to newer ones, the oldest first, because the spool was full.
            SpoolDropped = Deliver, Lost, "spool_dropped";
            /// Records of batches that the other side will never take; they are set aside, in files that end in .refused.
            DeliverRefused = Deliver, Lost, "refused_by_store";
            /// Records of batches whose files in the spool were damaged, or gone.
            SpoolDamaged = Deliver, Lost, "spool_damaged";
            /// Records that an earlier run had left in the spool.
            DeliverResumed = Deliver, Note, "resumed";
            /// Batches that were acknowledged.
            DeliverBatches = Deliver, Note, "batches";
            /// Times a batch was sent that may have come before: the other side tells that it is the same.
            DeliverResent = Deliver, Note, "resent";
            /// Records that the other side may have twice, as it had forgotten what would have told it.
            MaybeDuplicated = Deliver, Note, "maybe_duplicated";
            /// Times the other side went away, or refused for a time.
            DeliverOutages = Deliver, Note, "outages";
            /// Files of batches that are set aside in the spool in the end, of this run and of those before: .refused, .damaged, .unclaimed.
            DeliverAside = Deliver, Note, "set_aside";
            /// Files that were set aside and removed, the oldest first, as they took more than a tenth of what the spool may.
            DeliverAsideDropped = Deliver, Note, "set_aside_dropped";
            /// How long the oldest batch that waits has waited, in milliseconds.
            DeliverLagMs = Deliver, Note, "lag_ms";
        }
    };
}
