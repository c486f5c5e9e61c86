// What a demo session sends: the camera and microphone, or a drawn harbour with a soft tone.

const WIDTH = 480;
const HEIGHT = 270;
const FRAMES_PER_SECOND = 20;

/**
 * openSource returns {stream, close}. kind is 'camera' or 'canvas'.
 * It throws a DOMException when the camera is refused or missing.
 */
export async function openSource(kind) {
  return kind === 'camera' ? openCamera() : openCanvas();
}

async function openCamera() {
  const stream = await navigator.mediaDevices.getUserMedia({
    video: { width: { ideal: 640 }, height: { ideal: 360 }, frameRate: { ideal: 24 } },
    audio: true,
  });
  return { stream, close: () => stream.getTracks().forEach((track) => track.stop()) };
}

function openCanvas() {
  const canvas = Object.assign(document.createElement('canvas'), { width: WIDTH, height: HEIGHT });
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const pen = canvas.getContext('2d', { alpha: false });
  const began = performance.now();
  const draw = () => drawHarbour(pen, (performance.now() - began) / 1000, still);
  draw();
  // A timer and not requestAnimationFrame: the picture also goes out while the page is not looked at.
  const timer = setInterval(draw, 1000 / FRAMES_PER_SECOND);
  const stream = canvas.captureStream(FRAMES_PER_SECOND);
  const tone = openTone();
  tone.stream.getAudioTracks().forEach((track) => stream.addTrack(track));
  return { stream, close: () => closeAll(timer, tone, stream) };
}

function closeAll(timer, tone, stream) {
  clearInterval(timer);
  tone.close();
  stream.getTracks().forEach((track) => track.stop());
}

/** openTone plays two soft notes into a stream, not into the room. */
function openTone() {
  const context = new AudioContext();
  const out = context.createMediaStreamDestination();
  const gain = new GainNode(context, { gain: 0.04 });
  gain.connect(out);
  for (const frequency of [220, 277.2]) {
    const note = new OscillatorNode(context, { type: 'sine', frequency });
    note.connect(gain);
    note.start();
  }
  resumeOnGesture(context);
  return { stream: out.stream, close: () => context.close() };
}

/** Browsers keep audio suspended until somebody touches the page: after an autostart the tone begins then. */
function resumeOnGesture(context) {
  if (context.state === 'running') return;
  const resume = () => context.state === 'suspended' && context.resume().catch(() => {});
  resume();
  for (const type of ['pointerdown', 'keydown']) addEventListener(type, resume, { once: true });
}

/** drawHarbour paints second t: a boat on moving water, and a clock that proves how old a picture is. */
function drawHarbour(pen, t, still) {
  const sway = still ? 0 : t;
  pen.fillStyle = '#dcebf0';
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  drawSun(pen);
  drawWater(pen, sway, 150, '#8fbccb', 7);
  drawBoat(pen, ((0.4 + (still ? 0 : t * 0.045)) % 1.3) * WIDTH - 60, 158 + Math.sin(sway * 1.7) * 4, Math.sin(sway * 1.3) * 0.06);
  drawWater(pen, sway * 1.4 + 2, 172, '#3f8597', 6);
  drawWater(pen, sway * 1.9 + 5, 204, '#12506a', 5);
  drawClock(pen, t);
}

function drawSun(pen) {
  pen.fillStyle = '#f2e6c4';
  pen.beginPath();
  pen.arc(370, 92, 40, 0, 2 * Math.PI);
  pen.fill();
}

function drawWater(pen, phase, level, color, height) {
  pen.fillStyle = color;
  pen.beginPath();
  pen.moveTo(0, HEIGHT);
  for (let x = 0; x <= WIDTH; x += 12) pen.lineTo(x, level + Math.sin(x * 0.03 + phase) * height);
  pen.lineTo(WIDTH, HEIGHT);
  pen.fill();
}

function drawBoat(pen, x, y, tilt) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(tilt);
  polygon(pen, '#12283a', [[-44, 0], [46, 0], [32, 22], [-34, 22]]);
  polygon(pen, '#12283a', [[-2, -78], [2, -78], [2, 0], [-2, 0]]);
  polygon(pen, '#fbfaf6', [[5, -74], [42, -8], [5, -8]]);
  polygon(pen, '#a8246f', [[-5, -66], [-32, -8], [-5, -8]]);
  pen.restore();
}

function polygon(pen, color, points) {
  pen.fillStyle = color;
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.fill();
}

function drawClock(pen, t) {
  const minutes = String(Math.floor(t / 60)).padStart(2, '0');
  const seconds = (t % 60).toFixed(1).padStart(4, '0');
  pen.fillStyle = '#fbfaf6';
  pen.font = '600 30px ui-monospace, monospace';
  pen.fillText(`${minutes}:${seconds}`, 20, HEIGHT - 20);
}
