// Numbers from RTCPeerConnection.getStats(): totals as they are, and rates between two looks.

/**
 * readTotals picks what the page shows from a stats report. Absent numbers are 0; rtt is in seconds or undefined.
 * The totals belong to one PeerConnection: they begin at 0 with every new one.
 */
export function readTotals(report) {
  const totals = { at: 0, framesDecoded: 0, audioPackets: 0, received: 0, sent: 0, lost: 0, rtt: undefined, width: 0, height: 0 };
  let selected;
  for (const entry of report.values()) {
    totals.at = Math.max(totals.at, entry.timestamp);
    if (entry.type === 'inbound-rtp') addInbound(totals, entry);
    if (entry.type === 'outbound-rtp') totals.sent += entry.bytesSent ?? 0;
    if (entry.type === 'transport' && entry.selectedCandidatePairId) selected = entry.selectedCandidatePairId;
  }
  totals.rtt = report.get(selected)?.currentRoundTripTime;
  return totals;
}

function addInbound(totals, entry) {
  totals.received += entry.bytesReceived ?? 0;
  totals.lost += Math.max(0, entry.packetsLost ?? 0);
  if (entry.kind === 'audio') totals.audioPackets += entry.packetsReceived ?? 0;
  if (entry.kind !== 'video') return;
  totals.framesDecoded += entry.framesDecoded ?? 0;
  totals.width = entry.frameWidth ?? totals.width;
  totals.height = entry.frameHeight ?? totals.height;
}

/** Rates are taken over this long, in milliseconds: shorter ones jump with every frame. */
const WINDOW = 1500;

/** Meter turns the totals of one PeerConnection into rates per second. */
export class Meter {
  #looks = [];

  /** add returns {framesPerSecond, kbpsIn, kbpsOut} up to the given totals. */
  add(totals) {
    this.#looks.push(totals);
    while (this.#looks.length > 2 && totals.at - this.#looks[0].at > WINDOW) this.#looks.shift();
    const [first] = this.#looks;
    const seconds = (totals.at - first.at) / 1000;
    const rate = (member) => (seconds > 0 ? Math.max(0, totals[member] - first[member]) / seconds : 0);
    return {
      framesPerSecond: rate('framesDecoded'),
      kbpsIn: (rate('received') * 8) / 1000,
      kbpsOut: (rate('sent') * 8) / 1000,
    };
  }
}
