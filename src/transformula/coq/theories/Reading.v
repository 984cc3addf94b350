(* Softmax models read by computation: the data token's slots are linear forms of wires, and a wire is an input, a head's
   table or a hidden unit. Keys and values read slots that nobody writes, so they are constants in every block. *)
Require Import Reals Lra Lia List NArith ZArith QArith Qreals Bool FinFun.
Require Import Transformula.Transformer Transformula.Attention.
Import ListNotations.
Open Scope R_scope.

(* Wire 0 is the constant 1; then come the inputs. *)
Definition form := list (N * Q).
Definition eval (w : vector) (f : form) : R := sum (map (fun e => Q2R (snd e) * w (fst e)) f).
Inductive wire := Table (u : form) (l : list token) | Relu (u : form).
Definition asked (v : wire) : form := match v with Table u _ => u | Relu u => u end.
Definition value_of (w : vector) (v : wire) : R :=
  match v with Table u l => attend l (eval w u) | Relu u => Rmax 0 (eval w u) end.
Fixpoint holds (w : vector) (k : N) (l : list wire) : Prop :=
  match l with [] => True | v :: l => w k = value_of w v /\ holds w (N.succ k) l end.

(* Forms are sums without zero terms. *)
Fixpoint insert (k : N) (c : Q) (f : form) : form :=
  match f with [] => [(k, c)] | (j, d) :: f => if N.eqb j k then (j, Qred (c + d)) :: f else (j, d) :: insert k c f end.
Definition add (f g : form) : form := fold_right (fun e a => insert (fst e) (snd e) a) g f.
Definition scale (c : Q) (f : form) : form := map (fun e => (fst e, Qred (c * snd e))) f.
Definition clean (f : form) : form := filter (fun e => negb (Qeq_bool (snd e) 0)) f.
Definition rational (e : entry) : Q := numerator e # denominator e.
Definition row_form (m : matrix) (r : N) (data : list form) : form := clean (fold_right (fun e a =>
  if N.eqb (at_row e) r then add (scale (rational e) (nth (N.to_nat (at_column e)) data [])) a else a) [] m).
Definition row_sum (m : matrix) (r : N) (v : N -> Q) : Q := fold_right (fun e a =>
  if N.eqb (at_row e) r then Qred (rational e * v (at_column e) + a) else a) 0%Q m.
Definition stored (m : matrix) (t k : N) : Q := row_sum m t (fun j => if N.eqb j k then 1%Q else 0%Q).

Arguments Qred : simpl never.
Arguments Q2R : simpl never.
Lemma real_rational e : Q2R (rational e) = number e.
Proof. reflexivity. Qed.
Lemma real_red q : Q2R (Qred q) = Q2R q.
Proof. apply Qeq_eqR, Qred_correct. Qed.
Lemma eval_insert w k c f : eval w (insert k c f) = Q2R c * w k + eval w f.
Proof.
  unfold eval. induction f as [|[j d] f IH]; [reflexivity|]. simpl. destruct (N.eqb_spec j k) as [->|H]; simpl.
  - rewrite real_red, Q2R_plus. lra.
  - rewrite IH. lra.
Qed.
Lemma eval_add w f g : eval w (add f g) = eval w f + eval w g.
Proof.
  induction f as [|e f IH]; [unfold eval; simpl; lra|]. change (add (e :: f) g) with (insert (fst e) (snd e) (add f g)).
  rewrite eval_insert, IH. unfold eval. simpl. lra.
Qed.
Lemma eval_scale w c f : eval w (scale c f) = Q2R c * eval w f.
Proof. unfold eval, scale. induction f; simpl; [lra|]. rewrite real_red, Q2R_mult, IHf. lra. Qed.
Lemma eval_clean w f : eval w (clean f) = eval w f.
Proof.
  unfold eval, clean. induction f as [|e f IH]; [reflexivity|]. simpl. destruct (Qeq_bool (snd e) 0) eqn:E; simpl; rewrite IH.
  - apply Qeq_bool_iff, Qeq_eqR in E. rewrite E, RMicromega.Q2R_0. lra.
  - lra.
Qed.
Definition narrow (n : N) (m : matrix) : bool := forallb (fun e => N.ltb (at_column e) n) m.
Definition follows (w : vector) (n : N) (v : vector) (data : list form) : Prop :=
  forall k, (k < n)%N -> v k = eval w (nth (N.to_nat k) data []).
Lemma eval_row w n m r v data : narrow n m = true -> follows w n v data -> row m r v = eval w (row_form m r data).
Proof.
  intros Hn Hv. unfold row_form. rewrite eval_clean. unfold row. induction m as [|e m IH]; [reflexivity|].
  simpl in *. apply andb_true_iff in Hn as [He Hn]. rewrite (IH Hn). destruct (N.eqb (at_row e) r).
  - rewrite eval_add, eval_scale, real_rational. rewrite (Hv _ (proj1 (N.ltb_lt _ _) He)). reflexivity.
  - lra.
Qed.
Lemma real_row_sum m r v v' : (forall e, In e m -> v' (at_column e) = Q2R (v (at_column e))) -> row m r v' = Q2R (row_sum m r v).
Proof.
  unfold row. induction m as [|e m IH]; intros H; [simpl; rewrite RMicromega.Q2R_0; reflexivity|]. simpl.
  rewrite IH by (intros; apply H; now right). destruct (N.eqb (at_row e) r).
  - rewrite real_red, Q2R_plus, Q2R_mult, real_rational, (H e) by now left. reflexivity.
  - lra.
Qed.
Lemma real_stored m t k : row m t (fun j => if N.eqb j k then 1 else 0) = Q2R (stored m t k).
Proof.
  apply real_row_sum. intros e _. destruct (N.eqb _ k); [rewrite RMicromega.Q2R_1 | rewrite RMicromega.Q2R_0]; reflexivity.
Qed.

(* Slots that are written, or carry an input. *)
Definition mem (k : N) (l : list N) : bool := existsb (N.eqb k) l.
Definition layer_rows (b : block) : list N :=
  match feed_forward b with None => [] | Some f => map at_row (outgoing f) ++ map at_row (outgoing_bias f) end.
Definition changed (b : block) : list N := flat_map (fun h => map at_row (value h)) (heads b) ++ layer_rows b.
Definition open_slots (M : model) : list N := map at_row (embedding M) ++ flat_map changed (blocks M).
Definition steady (ws : list N) (m : matrix) : bool := forallb (fun e => negb (mem (at_column e) ws)) m.

(* A head's table for one slot that it writes. *)
Definition constant_part (f : form) : option Q :=
  match f with [] => Some 0%Q | [(k, c)] => if N.eqb k 0 then Some c else None | _ => None end.
Fixpoint constants (l : list form) : option (list Q) :=
  match l with
  | [] => Some []
  | f :: l => match constant_part f, constants l with Some c, Some cs => Some (c :: cs) | _, _ => None end
  end.
Definition Qdot (a b : list Q) : Q := fold_right (fun p s => Qred (fst p * snd p + s)) 0%Q (combine a b).
Definition keys (M : model) (h : head) (t : N) (rows : list N) : list Q :=
  map (fun r => row_sum (key h) r (stored (memory M) t)) rows.
Definition read_head (M : model) (data : list form) (h : head) : option (form * list (N * Q * list Q)) :=
  match map (fun r => row_form (query h) r data) (first (size h)) with
  | [] => None
  | u :: rest =>
      match constants rest, projection h with
      | Some cs, None => Some (u, map (fun t =>
          match keys M h t (first (size h)) with [] => (t, 0%Q, []) | a :: bs => (t, a, [Qdot cs bs]) end) (first (tokens M)))
      | _, _ => None
      end
  end.
Definition table (M : model) (h : head) (slot : N) (l : list (N * Q * list Q)) : list token :=
  map (fun p => match p with (t, a, b) => (a, nth 0 b 0%Q, row_sum (value h) slot (stored (memory M) t)) end) l.
Definition distinct (l : list N) : list N := nodup N.eq_dec l.

(* Every head's wires in turn: the slot that each is added to, and the wire. *)
Fixpoint read_heads (M : model) (data : list form) (hs : list head) : option (list (N * wire)) :=
  match hs with
  | [] => Some []
  | h :: hs =>
      match read_head M data h, read_heads M data hs with
      | Some (u, l), Some ws => Some (map (fun s => (s, Table u (table M h s l))) (distinct (map at_row (value h))) ++ ws)
      | _, _ => None
      end
  end.
Fixpoint added (k : N) (ws : list (N * wire)) (slot : N) : form :=
  match ws with [] => [] | (s, _) :: ws => if N.eqb s slot then (k, 1%Q) :: added (N.succ k) ws slot else added (N.succ k) ws slot end.
Definition units (f : layer) : list N := first (fold_right N.max 0%N (map (fun e => N.succ (at_column e)) (outgoing f))).
Definition bias_form (m : matrix) (r : N) : form := clean [(0%N, row_sum m r (fun _ => 1%Q))].
Definition unit_forms (f : layer) (data : list form) : list form :=
  map (fun u => add (row_form (hidden f) u data) (bias_form (hidden_bias f) u)) (units f).
Fixpoint numbered (k : N) (n : nat) : list form := match n with O => [] | S n => [(k, 1%Q)] :: numbered (N.succ k) n end.
Definition read_layer (n : N) (k : N) (f : layer) (data : list form) : list wire * list form :=
  (map Relu (unit_forms f data),
   map (fun slot => add (nth (N.to_nat slot) data []) (add (row_form (outgoing f) slot (numbered k (length (units f))))
                                                          (bias_form (outgoing_bias f) slot))) (first n)).
Definition read_block (M : model) (k : N) (b : block) (data : list form) : option (list wire * list form) :=
  match attention b, read_heads M data (heads b) with
  | Softmax, Some ws =>
      let here := map (fun slot => add (nth (N.to_nat slot) data []) (added k ws slot)) (first (width M)) in
      match feed_forward b with
      | None => Some (map snd ws, here)
      | Some f =>
          let '(us, after) := read_layer (width M) (k + N.of_nat (length ws)) f here in Some (map snd ws ++ us, after)
      end
  | _, _ => None
  end.
Fixpoint read_blocks (M : model) (k : N) (bs : list block) (data : list form) : option (list wire * list form) :=
  match bs with
  | [] => Some ([], data)
  | b :: bs =>
      match read_block M k b data with
      | Some (ws, data) =>
          match read_blocks M (k + N.of_nat (length ws)) bs data with Some (l, data) => Some (ws ++ l, data) | None => None end
      | None => None
      end
  end.
Definition embedded (M : model) (n : N) (slot : N) : form := clean ((0%N, stored (memory M) 0 slot)
  :: map (fun i => (N.succ i, row_sum (embedding M) slot (fun j => if N.eqb j i then 1%Q else 0%Q))) (first n)).
Definition fits (M : model) (n : N) : bool :=
  let ws := open_slots M in
  forallb (fun b => forallb (fun h => narrow (width M) (query h) && steady ws (key h) && steady ws (value h)) (heads b)
                    && match feed_forward b with None => true | Some f => narrow (width M) (hidden f) end) (blocks M)
  && forallb (fun e => N.ltb (at_row e) (width M) && N.ltb (at_column e) n) (embedding M)
  && narrow (width M) (readout M) && N.ltb 0 (tokens M) && N.ltb 0 (width M).
Definition read (M : model) (n : N) (outputs : list N) : option (list wire * list form) :=
  if fits M n then
    match read_blocks M (N.succ n) (blocks M) (map (embedded M n) (first (width M))) with
    | Some (ws, data) => Some (ws, map (fun o => add (row_form (readout M) o data) (bias_form (bias M) o)) outputs)
    | None => None
    end
  else None.

(* Why that is what the model computes. *)
Lemma In_first k n : In k (first n) <-> (k < n)%N.
Proof.
  unfold first. rewrite in_map_iff. split.
  - intros [j [<- H]]. apply in_seq in H. lia.
  - intros H. exists (N.to_nat k). rewrite N2Nat.id. split; [reflexivity|]. apply in_seq. lia.
Qed.
Lemma nth_first {A} (f : N -> A) n k d : (k < n)%N -> nth (N.to_nat k) (map f (first n)) d = f k.
Proof.
  intros H. unfold first. rewrite map_map. rewrite (nth_indep _ d (f (N.of_nat 0))) by (rewrite map_length, seq_length; lia).
  rewrite (map_nth (fun x => f (N.of_nat x))). rewrite seq_nth by lia. simpl. now rewrite N2Nat.id.
Qed.
Lemma eval_app w f g : eval w (f ++ g) = eval w f + eval w g.
Proof. unfold eval. rewrite map_app. apply sum_app. Qed.
Lemma holds_app w l : forall k m, holds w k (l ++ m) <-> holds w k l /\ holds w (k + N.of_nat (length l)) m.
Proof.
  induction l as [|v l IH]; intros k m; simpl.
  - rewrite N.add_0_r. tauto.
  - rewrite IH. replace (N.succ k + N.of_nat (length l))%N with (k + N.pos (Pos.of_succ_nat (length l)))%N by lia. tauto.
Qed.
Lemma added_app ws : forall k ws' slot, added k (ws ++ ws') slot = added k ws slot ++ added (k + N.of_nat (length ws)) ws' slot.
Proof.
  induction ws as [|[s v] ws IH]; intros k ws' slot; simpl; [now rewrite N.add_0_r|].
  rewrite IH. replace (N.succ k + N.of_nat (length ws))%N with (k + N.pos (Pos.of_succ_nat (length ws)))%N by lia.
  destruct (N.eqb s slot); reflexivity.
Qed.
Lemma row_none m r v : ~ In r (map at_row m) -> row m r v = 0.
Proof.
  intros H. unfold row. apply sum_zero. intros e I. destruct (N.eqb_spec (at_row e) r) as [E|E]; [|reflexivity].
  exfalso. apply H. rewrite <- E. now apply in_map.
Qed.
Lemma combined {A} (f g : A -> R) l : sum (map (fun p => fst p * snd p) (combine (map f l) (map g l))) = sum (map (fun a => f a * g a) l).
Proof. induction l; simpl; [reflexivity|]. now rewrite IHl. Qed.
Lemma mixed_softmax l h s t slot : mixed Softmax l h s t slot =
  sum (map (fun t' => exp (score h s t t') * row (value h) slot (s t')) l) / sum (map (fun t' => exp (score h s t t')) l).
Proof.
  unfold mixed, pattern, softmax. rewrite !map_map, combined. set (D := sum (map (fun t' => exp (score h s t t')) l)).
  rewrite (sum_ext _ (fun t' => / D * (exp (score h s t t') * row (value h) slot (s t')))) by (intros; unfold Rdiv; ring).
  rewrite sum_scale. unfold Rdiv. ring.
Qed.
Lemma mem_In k l : mem k l = true <-> In k l.
Proof. unfold mem. rewrite existsb_exists. split; [intros [j [I E]]; apply N.eqb_eq in E; now subst | intros I; exists k; now rewrite N.eqb_refl]. Qed.

Section Correct.
Variable M : model.
Variable n : N.
Variable w : vector.
Hypothesis one : w 0%N = 1.
Let ws := open_slots M.
Definition constant (s : stream) : Prop := forall t k, ~ In k ws -> s t k = Q2R (stored (memory M) t k).

Lemma constant_row s m r t : constant s -> steady ws m = true -> row m r (s t) = Q2R (row_sum m r (stored (memory M) t)).
Proof.
  intros C H. apply real_row_sum. intros e I. apply C. unfold steady in H. rewrite forallb_forall in H.
  specialize (H e I). apply negb_true_iff in H. intros J. apply mem_In in J. congruence.
Qed.
Lemma eval_constant f c : constant_part f = Some c -> eval w f = Q2R c.
Proof.
  destruct f as [|[k d] [|]]; simpl; try discriminate.
  - intros E. injection E as <-. unfold eval. simpl. now rewrite RMicromega.Q2R_0.
  - destruct (N.eqb_spec k 0) as [->|]; [|discriminate]. intros E. injection E as <-. unfold eval. simpl. rewrite one. lra.
Qed.
Lemma dot_constants (q k : N -> R) (f : N -> form) (g : N -> Q) l : forall cs,
  constants (map f l) = Some cs -> (forall r, q r = eval w (f r)) -> (forall r, k r = Q2R (g r)) ->
  sum (map (fun r => q r * k r) l) = Q2R (Qdot cs (map g l)).
Proof.
  induction l as [|r l IH]; intros cs E Hq Hk; simpl in E.
  - injection E as <-. unfold Qdot. simpl. now rewrite RMicromega.Q2R_0.
  - destruct (constant_part (f r)) as [c|] eqn:F; [|discriminate]. destruct (constants (map f l)) as [ds|]; [|discriminate].
    injection E as <-. simpl. rewrite (IH ds eq_refl Hq Hk). unfold Qdot at 2. simpl. fold (Qdot ds (map g l)).
    rewrite real_red, Q2R_plus, Q2R_mult, Hq, Hk, (eval_constant _ _ F). reflexivity.
Qed.

Lemma read_head_ok h s data u l : narrow (width M) (query h) = true -> steady ws (key h) = true -> steady ws (value h) = true ->
  constant s -> follows w (width M) (s 0%N) data -> read_head M data h = Some (u, l) ->
  forall slot, heard Softmax (first (tokens M)) s 0 slot h = attend (table M h slot l) (eval w u).
Proof.
  intros Hq Hk Hv Hc Hd E slot. unfold read_head in E.
  destruct (first (size h)) as [|r0 rs] eqn:Rows; [discriminate|]. cbn [map] in E.
  destruct (constants (map (fun r => row_form (query h) r data) rs)) as [cs|] eqn:C; [|discriminate].
  destruct (projection h) eqn:P; [discriminate|].
  injection E as <- <-. unfold heard. rewrite P, mixed_softmax. unfold attend, num, den, table. rewrite !map_map.
  assert (S : forall t, score h s 0 t = Q2R (row_sum (key h) r0 (stored (memory M) t)) * eval w (row_form (query h) r0 data)
     + Q2R (Qdot cs (map (fun r => row_sum (key h) r (stored (memory M) t)) rs))).
  { intros t. unfold score. rewrite Rows. cbn [map sum].
    rewrite (eval_row w _ _ r0 _ _ Hq Hd), (constant_row s (key h) r0 t Hc Hk).
    rewrite (dot_constants _ _ (fun r => row_form (query h) r data) (fun r => row_sum (key h) r (stored (memory M) t)) rs cs C);
      [lra | intros; now apply (eval_row w (width M)) | intros; now apply constant_row]. }
  f_equal; apply sum_ext; intros t _; rewrite S; [rewrite (constant_row s (value h) slot t Hc Hv)|]; reflexivity.
Qed.
Lemma heard_none k l s t slot h : projection h = None -> ~ In slot (map at_row (value h)) -> heard k l s t slot h = 0.
Proof.
  intros P H. unfold heard. rewrite P. unfold mixed. induction (combine _ _) eqn:E; [reflexivity|].
  clear IHl0. rewrite <- E. clear E. apply sum_zero. intros [x y] I. apply in_combine_r in I. apply in_map_iff in I as [t' [<- _]].
  simpl. rewrite row_none by exact H. ring.
Qed.
Lemma one_head (T : N -> wire) slot D : forall k, NoDup D -> holds w k (map snd (map (fun s => (s, T s)) D)) ->
  eval w (added k (map (fun s => (s, T s)) D) slot) = if mem slot D then value_of w (T slot) else 0.
Proof.
  induction D as [|d D IH]; intros k ND H; [reflexivity|]. inversion ND as [|? ? H1 H2]; subst.
  destruct H as [Hk H]. specialize (IH (N.succ k) H2 H). simpl. simpl in Hk.
  rewrite (N.eqb_sym slot d). destruct (N.eqb_spec d slot) as [->|E].
  - simpl. change (Q2R 1 * w k + eval w (added (N.succ k) (map (fun s => (s, T s)) D) slot) = value_of w (T slot)).
    rewrite IH, RMicromega.Q2R_1, Hk. destruct (mem slot D) eqn:F; [apply mem_In in F; contradiction | lra].
  - simpl. exact IH.
Qed.
Definition head_fits (h : head) : bool := narrow (width M) (query h) && steady ws (key h) && steady ws (value h).
Lemma read_heads_ok s data hs : forall k l, forallb head_fits hs = true -> constant s -> follows w (width M) (s 0%N) data ->
  read_heads M data hs = Some l -> holds w k (map snd l) ->
  forall slot, sum (map (heard Softmax (first (tokens M)) s 0 slot) hs) = eval w (added k l slot).
Proof.
  induction hs as [|h hs IH]; intros k l F C D E H slot; simpl in E; [injection E as <-; reflexivity|].
  simpl in F. apply andb_true_iff in F as [Fh F]. unfold head_fits in Fh. rewrite !andb_true_iff in Fh. destruct Fh as [[F1 F2] F3].
  destruct (read_head M data h) as [[u t]|] eqn:R; [|discriminate]. destruct (read_heads M data hs) as [l'|] eqn:R'; [|discriminate].
  injection E as <-. rewrite map_app in H. apply holds_app in H as [H H']. rewrite map_length in H'. rewrite added_app, eval_app. simpl map. simpl sum.
  rewrite (IH _ l' F C D eq_refl H' slot). f_equal.
  rewrite one_head; [|apply NoDup_nodup|exact H]. destruct (mem slot _) eqn:E.
  - now rewrite (read_head_ok h s data u t F1 F2 F3 C D R).
  - apply heard_none; [unfold read_head in R; destruct (map _ _); [discriminate|]; destruct (constants _); [|discriminate]; destruct (projection h); [discriminate|reflexivity]|].
    intros I. apply (nodup_In N.eq_dec) in I. apply mem_In in I. unfold distinct in E. congruence.
Qed.
Lemma bias_ok m r : row m r ones = eval w (bias_form m r).
Proof.
  unfold bias_form. rewrite eval_clean. unfold eval. simpl. rewrite one, (real_row_sum m r (fun _ => 1%Q)); [lra|].
  intros. now rewrite RMicromega.Q2R_1.
Qed.
Lemma nth_numbered c : forall k j, (j < c)%nat -> nth j (numbered k c) [] = [((k + N.of_nat j)%N, 1%Q)].
Proof.
  induction c as [|c IH]; intros k j H; [lia|]. destruct j as [|j]; simpl; [now rewrite N.add_0_r|].
  rewrite IH by lia. do 2 f_equal. lia.
Qed.
Lemma holds_nth l : forall k j v, holds w k l -> (j < length l)%nat -> w (k + N.of_nat j)%N = value_of w (nth j l v).
Proof.
  induction l as [|a l IH]; intros k j v H L; simpl in L; [lia|]. destruct H as [Ha H]. destruct j as [|j]; simpl; [now rewrite N.add_0_r|].
  rewrite <- (IH (N.succ k) j v H) by lia. f_equal. lia.
Qed.
Lemma max_le l k : In k l -> (k <= fold_right N.max 0 l)%N.
Proof. induction l; simpl; [tauto|]. intros [->|H]; [lia|]. specialize (IHl H). lia. Qed.
Lemma read_layer_ok f k z data us after : narrow (width M) (hidden f) = true -> follows w (width M) z data ->
  read_layer (width M) k f data = (us, after) -> holds w k us -> follows w (width M) (fun slot => z slot + fed f z slot) after.
Proof.
  intros F D E H slot L. injection E as <- <-. rewrite nth_first by exact L. rewrite eval_add, eval_add, (D slot L). f_equal.
  unfold fed. rewrite (bias_ok (outgoing_bias f)). f_equal.
  set (c := fold_right N.max 0%N (map (fun e => N.succ (at_column e)) (outgoing f))).
  apply (eval_row w c).
  - unfold narrow. apply forallb_forall. intros e I. apply N.ltb_lt. apply N.lt_le_trans with (N.succ (at_column e)); [lia|].
    apply max_le, in_map_iff. now exists e.
  - intros u Hu. assert (Lc : length (units f) = N.to_nat c) by (unfold units; fold c; unfold first; rewrite !map_length, seq_length; reflexivity).
    rewrite nth_numbered by lia. unfold eval. simpl. rewrite RMicromega.Q2R_1.
    rewrite (holds_nth _ k (N.to_nat u) (Relu []) H) by (unfold unit_forms; rewrite !map_length; lia).
    change (Relu []) with (Relu (@nil (N * Q))). rewrite map_nth. unfold unit_forms, units. fold c. rewrite nth_first by exact Hu.
    simpl. rewrite eval_add, <- bias_ok. unfold activation. rewrite (eval_row w _ (hidden f) u z data F D). lra.
Qed.
Lemma steady_sum s k l t slot hs : ~ In slot (flat_map (fun h => map at_row (value h)) hs) -> forallb (fun h => match projection h with None => true | _ => false end) hs = true ->
  sum (map (heard k l s t slot) hs) = 0.
Proof.
  intros H P. apply sum_zero. intros h I. rewrite forallb_forall in P. specialize (P h I). apply heard_none; [destruct (projection h); [discriminate|reflexivity]|].
  intros J. apply H, in_flat_map. now exists h.
Qed.
Lemma read_heads_plain data hs : forall l, read_heads M data hs = Some l -> forallb (fun h => match projection h with None => true | _ => false end) hs = true.
Proof.
  induction hs as [|h hs IH]; intros l E; [reflexivity|]. simpl in *. destruct (read_head M data h) as [[u t]|] eqn:R; [|discriminate].
  destruct (read_heads M data hs) as [l'|]; [|discriminate]. rewrite (IH l' eq_refl). unfold read_head in R.
  destruct (map _ (first (size h))); [discriminate|]. destruct (constants _); [|discriminate]. destruct (projection h); [discriminate|reflexivity].
Qed.
Definition block_fits (b : block) : bool :=
  forallb head_fits (heads b) && match feed_forward b with None => true | Some f => narrow (width M) (hidden f) end.
Lemma read_block_ok b k s data l after : block_fits b = true -> In b (blocks M) -> constant s -> follows w (width M) (s 0%N) data ->
  read_block M k b data = Some (l, after) -> holds w k l ->
  constant (run (first (tokens M)) s b) /\ follows w (width M) (run (first (tokens M)) s b 0%N) after.
Proof.
  intros F B C D E H. unfold block_fits in F. apply andb_true_iff in F as [Fh Ff]. unfold read_block in E.
  destruct (attention b) eqn:K; [|discriminate]. destruct (read_heads M data (heads b)) as [ps|] eqn:R; [|discriminate].
  assert (W : forall slot, ~ In slot ws -> ~ In slot (changed b)).
  { intros slot N I. apply N. unfold ws, open_slots. apply in_or_app. right. apply in_flat_map. now exists b. }
  set (here := map (fun slot => add (nth (N.to_nat slot) data []) (added k ps slot)) (first (width M))) in *.
  assert (Z : holds w k (map snd ps) -> follows w (width M) (attended (first (tokens M)) b s 0%N) here).
  { intros Hp slot L. unfold here. rewrite nth_first by exact L. rewrite eval_add, <- (D slot L). unfold attended. rewrite K. f_equal.
    now apply (read_heads_ok s data). }
  assert (S : forall t slot, ~ In slot (changed b) -> attended (first (tokens M)) b s t slot = s t slot).
  { intros t slot N. unfold attended. rewrite steady_sum; [lra| |now apply (read_heads_plain data _ ps)].
    intros I. apply N. unfold changed. apply in_or_app. now left. }
  destruct (feed_forward b) as [f|] eqn:FF.
  - destruct (read_layer _ _ f here) as [us aft] eqn:RL. injection E as <- <-. apply holds_app in H as [Hp Hu]. rewrite map_length in Hu.
    split.
    + intros t slot N. unfold run. rewrite FF. rewrite S by auto. rewrite (C t slot N). unfold fed.
      rewrite !row_none; [lra| |]; intros I; apply (W slot N); unfold changed, layer_rows; rewrite FF; apply in_or_app; right; apply in_or_app; auto.
    + unfold run. rewrite FF. apply (read_layer_ok f (k + N.of_nat (length ps))%N _ here us); auto.
  - injection E as <- <-. split.
    + intros t slot N. unfold run. rewrite FF. rewrite S by auto. now apply C.
    + unfold run. rewrite FF. now apply Z.
Qed.
Lemma read_blocks_ok bs : forall k s data l after, forallb block_fits bs = true -> (forall b, In b bs -> In b (blocks M)) -> constant s ->
  follows w (width M) (s 0%N) data -> read_blocks M k bs data = Some (l, after) -> holds w k l ->
  follows w (width M) (fold_left (run (first (tokens M))) bs s 0%N) after.
Proof.
  induction bs as [|b bs IH]; intros k s data l after F I C D E H; simpl in E; [injection E as <- <-; exact D|].
  simpl in F. apply andb_true_iff in F as [Fb F].
  destruct (read_block M k b data) as [[ps here]|] eqn:R; [|discriminate].
  destruct (read_blocks M _ bs here) as [[l' aft]|] eqn:R'; [|discriminate]. injection E as <- <-. apply holds_app in H as [Hp Hl].
  destruct (read_block_ok b k s data ps here Fb (I b (or_introl eq_refl)) C D R Hp) as [C' D'].
  simpl. apply (IH (k + N.of_nat (length ps))%N _ here l'); auto. intros b' J. apply I. now right.
Qed.

Lemma embedded_ok x slot : forallb (fun e => N.ltb (at_row e) (width M) && N.ltb (at_column e) n) (embedding M) = true ->
  (forall i, (i < n)%N -> w (N.succ i) = x i) -> embed M x 0%N slot = eval w (embedded M n slot).
Proof.
  intros F X. unfold embedded, embed. rewrite eval_clean. unfold eval. simpl sum. simpl map. rewrite one, real_stored, N.mul_0_l, N.add_0_l.
  rewrite Rplus_comm. f_equal; [simpl; lra|]. rewrite map_map. simpl.
  assert (G : forall m, forallb (fun e => N.ltb (at_row e) (width M) && N.ltb (at_column e) n) m = true ->
    row m slot x = sum (map (fun i => Q2R (row_sum m slot (fun j => if N.eqb j i then 1%Q else 0%Q)) * w (N.succ i)) (first n))).
  { induction m as [|e m IH]; intros Fm.
    - symmetry. apply sum_zero. intros. simpl. rewrite RMicromega.Q2R_0. lra.
    - simpl in Fm. apply andb_true_iff in Fm as [Fe Fm]. apply andb_true_iff in Fe as [_ Fe]. apply N.ltb_lt in Fe.
      unfold row in *. simpl. rewrite (IH Fm). destruct (N.eqb (at_row e) slot).
      + rewrite (sum_ext (fun i => Q2R (Qred (rational e * (if N.eqb (at_column e) i then 1%Q else 0%Q) + row_sum m slot (fun j => if N.eqb j i then 1%Q else 0%Q))) * w (N.succ i))
           (fun i => number e * (if N.eqb (at_column e) i then w (N.succ i) else 0) + Q2R (row_sum m slot (fun j => if N.eqb j i then 1%Q else 0%Q)) * w (N.succ i))).
        * rewrite sum_plus, sum_scale. f_equal. f_equal.
          assert (P : forall l, NoDup l -> In (at_column e) l -> sum (map (fun i => if N.eqb (at_column e) i then w (N.succ i) else 0) l) = w (N.succ (at_column e))).
          { induction l as [|a l IHl]; intros ND I; [destruct I|]. inversion ND as [|? ? H1 H2]; subst. simpl. destruct (N.eqb_spec (at_column e) a) as [<-|E].
            - rewrite sum_zero; [lra|]. intros i J. destruct (N.eqb_spec (at_column e) i) as [<-|]; [contradiction|reflexivity].
            - destruct I as [->|I]; [congruence|]. rewrite (IHl H2 I). lra. }
          rewrite P; [symmetry; now apply X| |now apply In_first].
          unfold first. apply Injective_map_NoDup; [intros a b E; lia | apply seq_NoDup].
        * intros i _. rewrite real_red, Q2R_plus, Q2R_mult, real_rational. destruct (N.eqb (at_column e) i); [rewrite RMicromega.Q2R_1 | rewrite RMicromega.Q2R_0]; lra.
      + lra. }
  now apply G.
Qed.
Theorem read_ok x outputs l outs : read M n outputs = Some (l, outs) -> (forall i, (i < n)%N -> w (N.succ i) = x i) -> holds w (N.succ n) l ->
  map (output M x) outputs = map (eval w) outs.
Proof.
  intros E X H. unfold read in E. destruct (fits M n) eqn:F; [|discriminate]. unfold fits in F. rewrite !andb_true_iff in F.
  destruct F as [[[[Fb Fe] Fr] Ft] Fw]. destruct (read_blocks M _ _ _) as [[l' data]|] eqn:R; [|discriminate]. injection E as <- <-.
  rewrite map_map. apply map_ext. intros o. rewrite eval_add, <- bias_ok. unfold output. f_equal. apply (eval_row w (width M)); [exact Fr|].
  assert (D : follows w (width M) (final M x 0%N) data).
  { unfold final. apply (read_blocks_ok _ (N.succ n) (embed M x) (map (embedded M n) (first (width M))) l'); auto.
    - intros t k N. unfold embed. rewrite row_none, real_stored; [lra|]. intros I. apply N. unfold ws, open_slots. apply in_or_app. left.
      apply in_map_iff in I as [e [Ie I]]. assert (L := I). rewrite forallb_forall in Fe. specialize (Fe e I). apply andb_true_iff in Fe as [Fe _].
      apply N.ltb_lt in Fe. apply N.ltb_lt in Fw. rewrite Ie in Fe. assert (t = 0)%N by nia. subst t. rewrite N.mul_0_l, N.add_0_l in Ie.
      rewrite <- Ie. now apply in_map.
    - intros slot L. rewrite nth_first by exact L. now apply embedded_ok. }
  intros k L. rewrite N.div_small, N.mod_small by exact L. now apply D.
Qed.
End Correct.

(* The wires have values: each reads earlier ones only. *)
Fixpoint ordered (k : N) (l : list wire) : bool :=
  match l with [] => true | v :: l => forallb (fun e => N.ltb (fst e) k) (asked v) && ordered (N.succ k) l end.
Lemma eval_ext w w' f : (forall k, In k (map fst f) -> w k = w' k) -> eval w f = eval w' f.
Proof. intros H. unfold eval. apply sum_ext. intros e I. rewrite H; [reflexivity|]. now apply in_map. Qed.
Lemma wires_exist l : forall k w, ordered k l = true -> exists w', (forall j, (j < k)%N -> w' j = w j) /\ holds w' k l.
Proof.
  induction l as [|v l IH]; intros k w O; [exists w; simpl; auto|]. simpl in O. apply andb_true_iff in O as [Ov O].
  destruct (IH (N.succ k) (fun j => if N.eqb j k then value_of w v else w j) O) as [w' [A H]].
  assert (B : forall j, (j < k)%N -> w' j = w j) by (intros j L; rewrite A by lia; destruct (N.eqb_spec j k); [lia|reflexivity]).
  exists w'. split; [exact B|]. split; [|exact H]. rewrite A by lia. rewrite N.eqb_refl.
  assert (E : eval w' (asked v) = eval w (asked v)).
  { apply eval_ext. intros j I. apply B. apply in_map_iff in I as [e [<- I]]. rewrite forallb_forall in Ov. now apply N.ltb_lt, Ov. }
  destruct v; simpl in *; now rewrite E.
Qed.
Theorem reading M n outputs l outs x : read M n outputs = Some (l, outs) -> ordered (N.succ n) l = true ->
  exists w : vector, w 0%N = 1 /\ (forall i, (i < n)%N -> w (N.succ i) = x i) /\ holds w (N.succ n) l /\ map (output M x) outputs = map (eval w) outs.
Proof.
  intros R O. destruct (wires_exist l (N.succ n) (fun k => if N.eqb k 0 then 1 else x (N.pred k)) O) as [w [A H]].
  exists w. assert (w 0%N = 1) by (rewrite A by lia; reflexivity).
  assert (X : forall i, (i < n)%N -> w (N.succ i) = x i).
  { intros i L. rewrite A by lia. destruct (N.eqb_spec (N.succ i) 0); [lia|]. now rewrite N.pred_succ. }
  repeat split; auto. now apply (read_ok M n w H0 x outputs l outs).
Qed.

Ltac reading_form f := cbv [eval f map sum fst snd Q2R Qnum Qden].
Definition tokens_of (v : wire) : list token := match v with Table _ l => l | Relu _ => [] end.
