// Opens the report of a ramp in a Chromium that has no network, and says what is not as it should be.
//
// usage: node look.mjs CHROMIUM PAGE PICTURE
//
// Chromium is spoken to over two pipes (--remote-debugging-pipe), messages of JSON with a zero byte behind each; so
// nothing but Node is needed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [chromium, page, picture] = process.argv.slice(2);
const url = pathToFileURL(page).href;
const profile = mkdtempSync(join(tmpdir(), "browser-profile-"));
const limitMs = 480_000;

// A container has no sandbox of its own and little shared memory.
const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
const browser = spawn(chromium, [...flags, "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"], {
  stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
});
const [, , , orders, answers] = browser.stdio;

let number = 0;
let rest = "";
const waiting = new Map();
const events = [];
let heard = () => {};
answers.setEncoding("utf8");
answers.on("data", (chunk) => {
  const messages = (rest + chunk).split("\0");
  rest = messages.pop();
  for (const message of messages.map((text) => JSON.parse(text))) {
    if (message.id === undefined) {
      events.push(message);
      heard();
      continue;
    }
    const { resolve, reject } = waiting.get(message.id);
    waiting.delete(message.id);
    message.error ? reject(new Error(message.error.message)) : resolve(message.result);
  }
});

function ask(method, params = {}, sessionId = undefined) {
  number += 1;
  orders.write(JSON.stringify({ id: number, method, params, sessionId }) + "\0");
  return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
}

async function event(method) {
  while (!events.some((one) => one.method === method)) {
    await new Promise((resolve) => (heard = resolve));
  }
}

// What the page looks like once it is drawn; it runs in the browser.
function look() {
  const box = (element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return { left, right, top, bottom };
  };
  const drawings = [...document.querySelectorAll("svg")].map((svg) => ({
    title: svg.previousElementSibling.textContent,
    box: box(svg),
    curves: [...svg.querySelectorAll("polyline")].map((curve) => ({
      points: curve.points.numberOfItems,
      length: curve.getTotalLength(),
      colour: getComputedStyle(curve).stroke,
      box: box(curve),
    })),
    points: svg.querySelectorAll("circle").length,
    texts: [...svg.querySelectorAll("text")].map(box),
  }));
  return { drawings, steps: document.querySelectorAll("table tr").length - 1, verdict: document.querySelector("strong").textContent };
}

async function check() {
  const { targetId } = await ask("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await ask("Target.attachToTarget", { targetId, flatten: true });
  for (const domain of ["Network", "Page", "Log", "Runtime"]) await ask(`${domain}.enable`, {}, sessionId);
  const none = { offline: true, latency: 0, downloadThroughput: 0, uploadThroughput: 0 };
  await ask("Network.emulateNetworkConditions", none, sessionId);
  await ask("Page.navigate", { url }, sessionId);
  await event("Page.loadEventFired");
  const expression = `JSON.stringify((${look})())`;
  const { result } = await ask("Runtime.evaluate", { expression }, sessionId);
  const seen = JSON.parse(result.value);
  const shot = await ask("Page.captureScreenshot", { captureBeyondViewport: true }, sessionId);
  writeFileSync(picture, Buffer.from(shot.data, "base64"));

  const wrong = [];
  const want = (is, what) => is || wrong.push(what);
  const asked = events.filter((one) => one.method === "Network.requestWillBeSent").map((one) => one.params.request.url);
  want(asked.length === 1 && asked[0] === url, `it asks for ${asked}`);
  const said = events.filter((one) => ["Log.entryAdded", "Runtime.exceptionThrown"].includes(one.method));
  want(said.length === 0, `the browser complains: ${JSON.stringify(said.map((one) => one.params))}`);
  want(/messages\/s are safe|no rate is safe/.test(seen.verdict), `its verdict is ${seen.verdict}`);
  want(seen.steps >= 2, `${seen.steps} steps`);
  want(seen.drawings.length === 4, `${seen.drawings.length} drawings`);
  for (const { title, box, curves, points, texts } of seen.drawings) {
    const is_within = (inner) =>
      inner.left >= box.left && inner.right <= box.right && inner.top >= box.top && inner.bottom <= box.bottom;
    want(curves.length >= 2, `${title}: ${curves.length} curves`);
    want(points === curves.length * seen.steps, `${title}: ${points} points`);
    want(new Set(curves.map((curve) => curve.colour)).size === curves.length, `${title}: two curves of one colour`);
    want(texts.every(is_within), `${title}: a text is cut off`);
    for (const curve of curves) {
      want(curve.points === seen.steps && curve.length > 100, `${title}: a curve of ${curve.points} points, ${curve.length} long`);
      want(is_within(curve.box), `${title}: a curve leaves its drawing`);
    }
  }
  return wrong;
}

const limit = setTimeout(() => {
  console.log(`no answer within ${limitMs} ms`);
  browser.kill("SIGKILL");
  process.exit(1);
}, limitMs);
browser.on("error", (error) => {
  console.log(`${chromium} does not start: ${error.message}`);
  process.exit(1);
});
let wrong;
try {
  wrong = await check();
} catch (error) {
  wrong = [error.message];
}
// Closed in order it ends its own processes first, which otherwise write into the profile a while longer.
browser.on("exit", () => {
  clearTimeout(limit);
  rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
  for (const what of wrong) console.log(what);
  process.exit(wrong.length === 0 ? 0 : 1);
});
ask("Browser.close").catch((error) => console.log(`it does not close: ${error.message}`));
