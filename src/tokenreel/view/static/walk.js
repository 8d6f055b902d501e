// Going through a batch by keys: from row to row, token to token, segment to segment.

import { go, here } from "./address.js";
import { documentState } from "./panel.js";
import { CHUNK } from "./slots.js";
import { tokenAt } from "./tokens.js";

/** Go to the row above or below. */
export function stepRow(batch, by) {
  const rows = batch.list.items.filter((item) => item.chunk === null).map((item) => item.row);
  const at = rows.indexOf(here().row);
  const row = at < 0 ? rows[0] : rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  if (row !== undefined) go({ row, slot: null });
}

/** Go to the token before or after. */
export function stepToken(batch, by) {
  const { row, slot } = here();
  const last = batch.about.seq_len - 1;
  const next = slot === null ? 0 : Math.max(0, Math.min(last, slot + by));
  go({ row: row ?? batch.firstRow(), slot: next });
}

/** Go to where the segment before or after begins. */
export async function stepSegment(batch, by) {
  const row = here().row ?? batch.firstRow();
  const slot = here().slot ?? (by > 0 ? -1 : 0);
  const segments = await batch.slotsOf(row).segments();
  const starts = segments.map((segment) => segment.start);
  const next = by > 0 ? starts.find((start) => start > slot) : starts.findLast((start) => start < slot);
  if (next !== undefined) go({ row, slot: next });
}

/** Go to the document of the chosen token. */
export async function openDocument(batch) {
  const { row, slot } = here();
  if (row === null) return;
  const start = (slot ?? 0) - ((slot ?? 0) % CHUNK);
  const part = await batch.slotsOf(row).load(start, start + CHUNK);
  const segment = tokenAt(part, slot ?? 0)?.segment;
  if (!segment || segment.document === null) return;
  go({ ...documentState(segment), slot: segment.from + (slot ?? 0) - segment.start });
}
