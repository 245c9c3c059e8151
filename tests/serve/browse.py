"""Drives the page of `linerate serve` in a headless Chromium as a user would: by clicks and keys, reading the page.

    browse.py CHROMIUM ADDRESS FOLDER

ADDRESS is the address of the page with its token. Screenshots and downloads go to FOLDER. Prints a line per part that passes.
"""

import json
import pathlib
import sys
import time

from browser import Browser


def number(text):
    return None if text in (None, "-") else int(text.replace(",", ""))


def stream(page, name, packet, rate, count):
    page.click('[data-do="new"]')
    page.wait("an empty form", "!document.querySelector('[data-do=new]').disabled")
    page.type("#name", name)
    page.type("#packet", packet)
    page.type("#size", "128")
    page.type("#rate", rate)
    page.type("#count", count)
    page.choose("#tx", "p1")
    page.choose("#rx", "p2")
    page.wait("a valid stream", "document.querySelector('#verdict').dataset.state === 'right'")
    page.click('[data-do="apply"]')
    page.wait(f"{name} to be set", "document.querySelector('#verdict').dataset.state === 'set'")


def two_receivers(page):
    """A stream with two receiving ports keeps both when it is applied unchanged."""
    ask = ("(method, path, body) => fetch('/api/v1/' + path, {method, body: body && JSON.stringify(body), headers: {'Content-Type': "
           "'application/json', Authorization: 'Bearer ' + sessionStorage.getItem('linerate-token')}}).then((answer) => answer.json())")
    both = json.dumps({"streams": [{"name": "both", "tx": "p1", "rx": ["p1", "p2"], "packet": "ip/udp"}]})
    page.js(f"({ask})('PATCH', 'streams', {both})")
    page.js("location.hash = '#/edit/both'")
    page.wait("the stream", "document.querySelector('#name')?.value === 'both' && document.querySelector('#verdict').dataset.state === 'right'")
    page.click('[data-do="apply"]')
    page.wait("the stream to be set", "document.querySelector('#verdict').dataset.state === 'set'")
    kept = page.js(f"({ask})('GET', 'streams?name=both').then((answer) => answer.streams[0].rx.join())")
    assert kept == "p1,p2", kept
    page.click('[data-do="remove"]')
    page.wait("two streams", "document.querySelectorAll('[data-table=list] tbody tr').length === 2")
    progress("a stream keeps both its receiving ports")


def progress(what):
    print(what, flush=True)


def traffic(page):
    page.view("edit")
    page.wait("the first frames", "document.querySelectorAll('#frames details').length === 5")
    page.type("#packet", "ip/udp(dprt=53)")
    verdict = page.wait("an error", "document.querySelector('#verdict').dataset.state === 'wrong' && document.querySelector('#verdict').textContent")
    lines = verdict.split("\n")
    assert lines[1].index("^") == lines[0].index("dprt") and "did you mean dport?" in lines[2], verdict
    stream(page, "web", "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=80)", "100pps", "")
    stream(page, "dns", "ip(dst=10.0.1.1)/udp(sport=random(1024..65535), dport=53)/payload(\"<img src=x onerror=alert(1)>\")", "1kpps", "300")
    page.picture("streams")
    progress("two streams are defined")
    two_receivers(page)
    page.view("capture")
    page.click('[data-do="start"]')
    page.wait("a capture", "/capturing/.test(document.querySelector('[data-what=told]').textContent)")
    page.view("flows")
    page.choose("#port", "p2")
    page.click('[data-do="start"]')
    page.wait("a meter", "/meter is on/.test(document.querySelector('[data-what=told]').textContent)")
    page.view("run")
    began = time.monotonic()
    page.click('[data-do="start"]')
    state = "document.querySelector('tr[data-stream=%s] .state').textContent"
    page.wait("web to be sent", f"{state % 'web'} === 'sending'")
    progress(f"measured: a change on the screen: {time.monotonic() - began:.2f}")
    page.wait("dns to end", f"{state % 'dns'} === 'stopped' && document.querySelector('tr[data-stream=dns]').children[6].textContent === '300'")
    began = time.monotonic()
    page.type("tr[data-stream=web] input.rate", "500pps")
    page.key("Enter")
    page.wait("the new rate", "Number(document.querySelector('tr[data-stream=web]').children[7].textContent.replace(',', '')) > 400", 10)
    progress(f"a rate is changed, seen after {time.monotonic() - began:.1f} s")
    page.picture("run")
    page.view("flows")
    page.wait("flows", "document.querySelectorAll('[data-table=flows] tbody tr').length > 3")
    page.picture("flows")
    page.view("run")
    page.click('[data-do="stop"]')
    page.wait("the end", f"{state % 'web'} === 'stopped'")
    page.wait("no rate", "document.querySelector('tr[data-stream=web]').children[7].textContent === '0'")
    for name in ("web", "dns"):
        sent, received, lost = (number(page.cell("streams", f"data-stream={name}", column)) for column in (6, 9, 11))
        assert sent == received and sent >= 300 and lost == 0, (name, sent, received, lost)
        progress(f"{name}: sent {sent}, received {received}, lost {lost}")


def captured(page):
    page.view("capture")
    page.type("#filter", "udp dst port 53")
    page.click('[data-do="list"]')
    page.wait("the frames of dns", "/ 300 match/.test(document.querySelector('[data-what=told]').textContent)")
    page.click('[data-do="stop"]')
    page.click("[data-table=frames] tbody tr button")
    shown = page.wait("a frame", "document.querySelector('section .frame dl')?.textContent")
    assert "10.0.1.1" in shown and "dport=53" in shown, shown
    dump = page.js("document.querySelector('section .frame pre').textContent")
    assert dump.split("\n")[3].startswith("0030  72 63 3d 78 20 6f 6e 65") and "<img s" in dump, dump
    page.picture("capture")
    file = page.download('[data-do="download"]', "p2.pcapng")
    assert file[:4] == b"\x0a\x0d\x0d\x0a", file[:8]
    progress(f"captured frames are shown and downloaded: {len(file)} bytes")
    page.click('[data-do="replay"]')
    page.wait("the replay stream", "document.querySelector('#replay')?.value.startsWith('p2 ')")
    page.wait("its frames", "document.querySelectorAll('#frames details').length === 5 && document.querySelector('#packet').disabled")
    page.picture("replay")
    page.click('[data-do="remove"]')
    page.wait("two streams", "document.querySelectorAll('[data-table=list] tbody tr').length === 2")
    progress("captured frames are a stream that replays them")


def measured(page):
    page.view("measure")
    for field, value in (("size", "128"), ("max", "2kpps"), ("trial", "0.1"), ("sum", "0.2"), ("width", "20%")):
        page.type(f"#{field}", value)
    page.choose("#to", "p1")
    page.choose("#check", "p2")
    page.click('[data-do="estimate"]')
    progress(page.wait("an estimate", "document.querySelector('[data-what=estimate]').textContent"))
    page.click('[data-do="start"]')
    page.wait("a measurement", "document.querySelector('[data-what=told]').dataset.state === 'running'")
    page.wait("trials", "document.querySelectorAll('[data-table=trials] tbody tr').length > 0")
    page.wait("the end", "['done', 'failed'].includes(document.querySelector('[data-what=told]').dataset.state)")
    assert page.js("document.querySelector('[data-what=told]').dataset.state") == "done", page.js("document.body.innerText")
    page.wait("a result", "document.querySelector('[data-table=results] tbody tr') !== null")
    page.picture("measure")
    report = page.download('[data-report="html"]', "report.html")
    assert b"<html" in report and b"128" in report, report[:200]
    document = json.loads(page.download('[data-report="json"]', "report.json"))
    progress(f"measured: {document['state']}, {len(document['sizes'][0]['trials'])} trials")


def methods(page):
    """Every method has its own fields and results."""
    page.view("measure")
    shown = "['rate', 'services', 'burst-limit', 'sum', 'size'].filter((id) => !document.querySelector('#' + id).closest('label').hidden).join()"
    for method, fields in (("back-to-back", "burst-limit,size"), ("y1564", "services"), ("soak", "rate,size"), ("ndr", "sum,size")):
        page.choose("#method", method)
        assert page.js(shown) == fields, (method, page.js(shown))
    page.choose("#method", "y1564")
    page.type("#trial", "0.1")
    page.type("#performance", "0.5")
    page.choose("#services", page.js("document.querySelector('#services').value").replace("delay_ms = 20", "delay_ms = 5000").replace(
        "variation_ms = 5", "variation_ms = 5000"))
    page.choose("#to", "p1")
    page.choose("#check", "p2")
    page.click('[data-do="start"]')
    page.wait("the performance of services", "/performance/.test(document.querySelector('[data-table=found]').textContent)")
    page.wait("the end", "document.querySelector('[data-what=told]').dataset.state === 'done'")
    page.picture("services")
    progress("services are measured")


def many(page):
    """More streams than fit into a table are shown in pages."""
    file = "".join(f"[[stream]]\nname = 'many {number:03}'\npacket = 'ip/udp(sport={1024 + number})'\nsize = '128'\nrate = '1pps'\n" for number in range(450))
    page.view("edit")
    page.wait("the first frames", "document.querySelectorAll('#frames details').length > 0")
    page.click('[data-do="read"]')
    page.wait("the dialog", "document.querySelector('dialog').open")
    page.js(f"document.querySelector('#pasted').value = {json.dumps(file)}")
    page.click('[data-do="take"]')
    page.wait("the streams to be read", "!document.querySelector('dialog').open")
    page.wait("the list", "document.querySelectorAll('[data-table=list] tbody tr').length === 200")
    page.view("run")
    names = "[...document.querySelectorAll('[data-table=streams] tbody tr')].map((row) => row.dataset.stream)"
    page.wait("the first page", f"{names}.length === 200")
    page.picture("many")
    for _ in range(2):
        before = page.js(f"{names}[0]")
        page.click('[data-do="later"]')
        page.wait("the next page", f"{names}[0] !== {json.dumps(before)}")
    assert page.js(f"{names}.at(-1)") == "many 449", page.js(f"{names}.at(-1)")
    page.js("(async () => { const api = await import('/page/api.js'); const all = (await api.get('streams')).streams;"
            " await api.patch('streams', {streams: [], remove: all.map((one) => one.name).filter((name) => name.startsWith('many'))}); })()")
    page.wait("the first page after removal", f"{names}.length > 0 && !{names}.some((name) => name.startsWith('many'))")
    progress("450 streams are shown, 200 per page")


def forms(page):
    """Streams are saved in every format, removed, and read back."""
    page.view("edit")
    page.wait("streams", "document.querySelectorAll('[data-table=list] tbody tr').length === 2")
    for form, name in (("file", "streams.toml"), ("command", "generate.sh"), ("snappi", "streams.py")):
        if form == "snappi":
            # The Open Traffic Generator model cannot express random ports.
            page.click('[data-table=list] tr[data-stream=dns] a')
            page.wait("dns", "document.querySelector('#name').value === 'dns'")
            page.click('[data-do="remove"]')
            page.wait("one stream", "document.querySelectorAll('[data-table=list] tbody tr').length === 1")
        text = page.download(f'[data-form="{form}"]', name).decode()
        page.click('[data-do="read"]')
        page.js(f"document.querySelector('#pasted').value = {json.dumps(text)}")
        page.click('[data-do="take"]')
        page.wait("the streams to be read", "!document.querySelector('dialog').open")
        assert page.js("document.querySelector('#failure').hidden"), page.js("document.querySelector('#failure').textContent")
        packet = page.js("document.querySelector('[data-table=list] tr[data-stream=web]').children[2].textContent")
        assert "10.0.0.1" in packet or "167772161" in packet, packet
    name = "<img src=x onerror=alert(1)>"
    stream(page, name, "ip/udp", "1kpps", "1")
    page.view("run")
    page.wait("its name", f"document.querySelector('main').textContent.includes({json.dumps(name)})")
    assert page.js("document.querySelectorAll('img').length") == 0
    progress("streams are saved and read back, and names are text")


def by_keys(page):
    """The page works without a pointer."""
    page.view("run")
    page.ask("Page.reload")
    page.wait("the reloaded page", "document.querySelector('tr[data-stream=web]') !== null")

    def go_to(wanted):
        for _ in range(100):
            page.key("Tab")
            if page.js(f"document.activeElement.matches({json.dumps(wanted)})"):
                return
        raise SystemExit(f"{wanted} cannot be reached by keys")

    state = "document.querySelector('tr[data-stream=web] .state').textContent"
    for action, wanted in (("start", "sending"), ("pause", "paused"), ("resume", "sending"), ("stop", "stopped")):
        page.js("document.querySelector('#main').focus()")
        go_to(f'[data-do="{action}"]')
        page.key("Enter")
        page.wait(wanted, f"{state} === '{wanted}'")
    progress("everything works with the keyboard only")


def looks(page):
    """No view is wider than the window, in any size and colour scheme."""
    for width, height, scheme in ((1280, 900, "light"), (1280, 900, "dark"), (400, 860, "light")):
        page.size(width, height)
        page.colours(scheme)
        for view in ("run", "edit", "capture", "measure", "flows", "log"):
            page.view(view)
            page.wait("content", "document.querySelector('main').textContent.length > 40")
            time.sleep(0.2)
            page.picture(f"{view}-{width}-{scheme}")
            widest = page.js("document.documentElement.scrollWidth")
            assert widest <= width, f"{view} is {widest} pixels wide in a window of {width}"
    progress("views fit into 400 pixels")


def main():
    whole = time.monotonic()
    program, address, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    page = Browser(program, folder)
    page.size(1280, 900)
    page.colours("dark")
    page.ask("Page.navigate", url=address)
    page.wait("the page", "document.querySelector('#link')?.dataset.state === 'live'")
    assert "token" not in page.js("location.href")
    for part in (traffic, captured, measured, methods, many, forms, by_keys, looks):
        began = time.monotonic()
        part(page)
        print(f"{part.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    assert not page.errors, page.errors
    page.end()
    progress(f"measured: the whole: {time.monotonic() - whole:.1f}")
    progress("no error in the console")


main()
