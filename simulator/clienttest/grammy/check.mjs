// Runs a grammY bot against the simulator at SIMULATOR_URL and exits non-zero if anything isn't as it would be with the
// real platform.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { autoRetry } from '@grammyjs/auto-retry';
import { Bot, GrammyError, HttpError, InlineKeyboard, InputFile } from 'grammy';

const base = process.env.SIMULATOR_URL;
assert.ok(base, 'SIMULATOR_URL is not set');
const token = '4242:grammy-check-token';
const chat = 5005;

async function control(method, path, body) {
  const response = await fetch(`${base}/_sim/telegram${path}`, {
    method,
    headers: { 'Content-Type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const data = await response.json();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${JSON.stringify(data)}`);
  return data;
}

const say = (text) => control('POST', '/updates', { token, chat_id: chat, name: 'Ada', text });
const messages = (n) => control('GET', `/messages?chat_id=${chat}&at_least=${n}&timeout_ms=10000`);

await control('POST', '/bots', { token, username: 'grammy_bot' });
const bot = new Bot(token, { client: { apiRoot: base } });
const failures = [];
let pressed;
const press = new Promise((resolve) => { pressed = resolve; });
let edited;
const edit = new Promise((resolve) => { edited = resolve; });

bot.command('start', async (ctx) => {
  const answer = await ctx.reply('<b>Hello</b> ' + ctx.from.first_name, {
    parse_mode: 'HTML',
    reply_parameters: { message_id: ctx.msgId },
    reply_markup: new InlineKeyboard().text('Press me', 'pressed'),
  });
  assert.equal(answer.text, 'Hello Ada');
  assert.deepEqual(answer.entities, [{ type: 'bold', offset: 0, length: 5 }]);
  const changed = await ctx.api.editMessageText(chat, answer.message_id, 'Edited', { reply_markup: new InlineKeyboard().text('Press me', 'pressed') });
  assert.equal(changed.text, 'Edited');
  edited(answer.message_id);
});
bot.callbackQuery('pressed', async (ctx) => {
  await ctx.answerCallbackQuery('Thank you');
  await ctx.react('👍');
  pressed();
});
bot.catch((error) => failures.push(error.error));

const started = new Promise((resolve) => {
  bot.start({ onStart: resolve, timeout: 5 }).catch((error) => failures.push(error));
});
await started;
assert.equal(bot.botInfo.username, 'grammy_bot');

// A message is fetched by long polling, answered, and the answer is edited; its button is pressed.
await say('/start');
const id = await Promise.race([edit, sleep(10_000, null, { ref: false }).then(() => { throw new Error('no edit in 10 s'); })]);
await control('POST', '/press', { bot: token, chat_id: chat, message_id: id });
await Promise.race([press, sleep(10_000, null, { ref: false }).then(() => { throw new Error('no press in 10 s'); })]);
let sent = await messages(1);
assert.equal(sent[0].text, 'Edited');
assert.equal(sent[0].edits[0].text, 'Hello Ada');

// Errors keep their form.
await assert.rejects(bot.api.sendMessage(chat, 'a.', { parse_mode: 'MarkdownV2' }), (error) => {
  assert.ok(error instanceof GrammyError);
  assert.equal(error.error_code, 400);
  assert.match(error.description, /^Bad Request: can't parse entities: Character '\.' is reserved/);
  return true;
});
await control('POST', '/faults', { kind: 'status', status: 502, html: true, chat_id: chat });
await assert.rejects(bot.api.sendMessage(chat, 'down'), HttpError);
await control('POST', '/faults', { kind: 'lost', chat_id: chat });
await assert.rejects(bot.api.sendMessage(chat, 'lost'), HttpError);
sent = await messages(2);
assert.ok(sent[1].lost, 'the lost message was not accepted');

// Files go up.
await sleep(1100); // The chat's own limit: three at once, then one a second.
const file = await bot.api.sendDocument(chat, new InputFile(new TextEncoder().encode('content'), 'a.txt'), { caption: 'file' });
assert.equal(file.document.file_name, 'a.txt');

// A forced 429 is waited out by the auto-retry plugin.
bot.api.config.use(autoRetry());
await control('POST', '/faults', { kind: 'status', status: 429, retry_after: 1, method: 'sendMessage', chat_id: chat, cooldown: 'chat' });
const begin = Date.now();
await bot.api.sendMessage(chat, 'after the wait');
const took = Date.now() - begin;
assert.ok(took >= 1000, `the retry came after ${took} ms, want 1000 at least`);
sent = await messages(4);
assert.equal(sent.at(-1).text, 'after the wait');
assert.equal(sent.length, 4, 'a refused message was accepted');

await bot.stop();
assert.deepEqual(failures, []);
const stats = await control('GET', '/stats');
assert.equal(stats.pending_updates, 0, 'stopping must confirm the last update');
console.log('grammY works against the simulator:', JSON.stringify(stats.calls));
